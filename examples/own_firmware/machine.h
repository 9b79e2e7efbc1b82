// What main.c needs of the machine, for hil_target.
#ifndef MACHINE_H
#define MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void start_machine(void);

int receive(uint8_t* bytes, size_t room, uint32_t milliseconds);
bool send(const uint8_t* bytes, size_t size);

extern const uint32_t tick_hz;
uint64_t now(void);
uint64_t since(uint64_t begin);

#endif
