// What main.c needs of the machine, for hil_target.
#ifndef MACHINE_H
#define MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void start_machine(void);

// Returns the number of bytes that have come, 0 if none.
int receive(uint8_t* bytes, size_t room);
bool send(const uint8_t* bytes, size_t size);
// Sleeps until a byte comes, 16 ms at most: as long as the microphone takes for a frame.
void sleep_a_frame(void);

extern const char configuration[];
extern const uint32_t tick_hz;
uint64_t now(void);
uint64_t since(uint64_t begin);

#endif
