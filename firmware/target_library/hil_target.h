// A test target in firmware of your own. Link this library, give it a way to move bytes, a clock
// and memory: the host (`hil`, pytest) then loads programs (.pte), runs and steps them, and reads
// what they made, measured and faulted with. README.md has an example.
//
// No heap, no start-up code, no interrupt and no operating system of its own. There is one target
// in a firmware, and one thread calls it, but for hil_target_received().
#ifndef HIL_TARGET_H
#define HIL_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hil_channels.h"
#include "protocol.h"

#define HIL_NORETURN __attribute__((noreturn))

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hil_memory {
  uint8_t* data;
  size_t size;
} hil_memory;

// Memory for planned tensors. `region` is its name in messages, and in the host's `memory:`.
typedef struct hil_bank {
  const char* region;
  hil_memory memory;
} hil_bank;

// What the firmware grants. What is 0 or NULL is not there; what is not called optional must be.
typedef struct hil_target {
  const char* build_id;       // another one for each build; at most 255 printable bytes, as below
  const char* configuration;  // what it is built for, such as the name of the product
  const char* firmware;       // its name and version, for people; NULL in this project's runner
  uint32_t without;           // requests that it does not answer, as bits 1u << HIL_REQUEST_STEP

  // Returns the number of bytes received, 0 if none came in so many milliseconds (UINT32_MAX: waits
  // for ever), or less than 0 if the host is gone. Or NULL, and an interrupt that receives calls
  // hil_target_received(): `ring` then holds what is not served yet, 8192 bytes on a UART, and
  // `wait`, which is optional, sleeps until an interrupt unless hil_target_has_received().
  int (*read)(uint8_t* bytes, size_t room, uint32_t milliseconds);
  hil_memory ring;
  void (*wait)(void);
  // Sends all of it. Returns false if the host is gone.
  bool (*write)(const uint8_t* bytes, size_t size);
  // Ends the firmware after a fault; optional. Without it the host is told so again and again,
  // through `write` and `read` or `wait`, which are then called by the fault handler.
  void (*end)(int status);

  // The clock, optional. Ticks since `begin`, which was now(): NULL stands for now() - begin.
  uint64_t (*now)(void);
  uint64_t (*since)(uint64_t begin);
  const char* tick_source;  // "DWT", "SysTick" or "timer"
  uint32_t tick_hz;

  // Memory, aligned to 16, which the target alone uses. The first bank may be the end of `program`.
  hil_memory program;       // the .pte
  hil_memory method;        // what the runtime keeps of it
  hil_memory temp;          // what kernels take and give back; optional: they take it of `method`
  const hil_bank* banks;    // at most 8
  size_t bank_count;        // at least 1
  size_t unplanned_bank;    // of inputs and outputs that a program leaves to its caller
  const uint8_t* resident;  // flash that only a flash tool writes programs to; optional
  size_t resident_size;
  // The stack of the thread that serves, from its lowest address; optional: its peak is measured.
  // `stack_guard` are bytes below it that nobody else uses, to detect an overflow in.
  hil_memory stack;
  size_t stack_guard;
  hil_memory handler_stack;  // the other stack that a fault may occur on; optional
  // Where another thread than the one that serves passes HIL_INPUT: lets that run, such as by a
  // sleep of a tick. NULL: HIL_INPUT serves while it waits.
  void (*yield)(void);
  // Writes what kernels have executed, as gcov's files; returns its size, 0 if it does not fit.
  size_t (*coverage)(uint8_t* room, size_t size);
} hil_target;

// Starts, and tells the host. `target` stays in use. Returns NULL, or what is wrong with `target`.
const char* hil_target_start(const hil_target* target);

// Serves what has arrived, in a super-loop. Returns false once the host is gone.
bool hil_target_poll(void);

// Serves until the host is gone, in a task.
void hil_target_serve(void);

// Takes received bytes, in an interrupt, where `read` is NULL. What finds no room is lost.
void hil_target_received(const uint8_t* bytes, size_t size);
bool hil_target_has_received(void);

// A line in the host's log.
void hil_target_log(hil_log_level level, const char* text);

// Tells the host why the firmware ends, and ends it. For a failed assertion, for example.
HIL_NORETURN void hil_target_fatal(const char* what);

// Reports a fault and ends. For the handler of faults: `frame` is the main or the process stack
// pointer, as bit 2 of EXC_RETURN, which is in the link register, says.
HIL_NORETURN void hil_target_fault(const uint32_t* frame, uint32_t exc_return);

#ifdef __cplusplus
}
#endif

#endif
