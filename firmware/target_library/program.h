// The loaded program and its execution.
#ifndef HIL_PROGRAM_H
#define HIL_PROGRAM_H

#include "target_library/runtime_interface.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HIL_TO_THE_END UINT32_MAX

typedef struct hil_execution {
  uint64_t ticks;  // inside the runtime only
  bool done;
} hil_execution;

// Bytes of a bank, beside a program that takes the first `program` bytes of its memory: the first
// bank may be the end of that.
hil_memory hil_bank_beside(size_t number, size_t program);

// Gives the runtime its memory.
void hil_init_runtime(void);

// `program` lies in the memory for programs, from its start, or in flash; `method` as in
// hil_runtime_load(). false: hil_runtime_failure() says why.
bool hil_load_program(const uint8_t* program, size_t size, const char* method);
void hil_unload_program(void);
size_t hil_program_used(void);  // bytes, 0 if nothing is loaded

// At most `count` instructions from where the program stands, `before` each of which it calls that.
// false: hil_runtime_failure() says why, and the program is back at its start.
bool hil_execute(uint32_t count, void (*before)(uint32_t instruction), hil_execution* execution);

// Counts events of the PMU in what is executed from now on, until a program is loaded or unloaded;
// at most hil_pmu_counters().
void hil_count_events(const uint16_t* events, size_t count);

// For fault reports: -1 and "" outside an instruction.
int32_t hil_current_instruction(void);
const char* hil_current_operator(void);

#ifdef __cplusplus
}
#endif

#endif
