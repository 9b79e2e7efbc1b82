#include "target_library/program.h"

#include "target_library/link.h"
#include "target_library/pmu.h"
#include "target_library/stack.h"

static const size_t alignment = 16;

static size_t loaded_size = 0;
static uint64_t measuring = 0;  // ticks

// Read by the fault handler.
static volatile int32_t running_instruction = -1;
static const char* volatile running_operator = "";

hil_memory hil_bank_beside(size_t number, size_t program) {
  const hil_target* target = hil_used_target();
  hil_memory bank = target->banks[number].memory;
  const uintptr_t begin = (uintptr_t)target->program.data;
  const uintptr_t end = begin + (program + alignment - 1) / alignment * alignment;
  const uintptr_t at = (uintptr_t)bank.data;
  if (at < begin || at >= end) return bank;
  const size_t taken = (size_t)(end - at);
  bank.data += taken < bank.size ? taken : bank.size;
  bank.size -= taken < bank.size ? taken : bank.size;
  return bank;
}

static void init_beside(size_t program) {
  hil_bank banks[HIL_MAX_BANKS];
  const hil_target* target = hil_used_target();
  for (size_t i = 0; i < target->bank_count; ++i) {
    banks[i].region = target->banks[i].region;
    banks[i].memory = hil_bank_beside(i, program);
  }
  hil_runtime_init(banks, target->bank_count, target->unplanned_bank, target->method, target->temp);
}

bool hil_load_program(const uint8_t* program, size_t size, const char* method) {
  hil_unload_program();
  hil_fill_stack(false);  // its peak is the program's own, whatever ran before
  init_beside(program == hil_used_target()->program.data ? size : 0);
  if (!hil_runtime_load(program, size, method)) return false;
  loaded_size = size;
  return true;
}

void hil_unload_program(void) {
  loaded_size = 0;
  hil_pmu_choose(NULL, 0, NULL);
  hil_runtime_unload();
}

size_t hil_program_used(void) { return loaded_size; }

// Out of line, so that what measuring costs is the same whatever is called.
__attribute__((noinline)) static uint64_t ticks_of(bool (*call)(bool*), bool* done, bool* good) {
  const hil_target* target = hil_used_target();
  if (target->now == NULL) {
    *good = call(done);
    return 0;
  }
  const uint64_t begin = target->now();
  *good = call(done);
  return target->since != NULL ? target->since(begin) : target->now() - begin;
}

static bool nothing(bool* done) {
  *done = false;
  return true;
}

// What measuring costs, which is no part of what is measured.
static uint64_t cost_of_measuring(void) {
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < 3; ++i) {
    bool done;
    bool good;
    const uint64_t ticks = ticks_of(nothing, &done, &good);
    if (ticks < least) least = ticks;
  }
  return least;
}

void hil_init_runtime(void) {
  init_beside(0);
  measuring = cost_of_measuring();
}

static void measure_nothing(void) {
  bool done;
  bool good;
  ticks_of(nothing, &done, &good);
}

void hil_count_events(const uint16_t* events, size_t count) {
  hil_pmu_choose(events, count, measure_nothing);
}

static void enter(uint32_t instruction, const char* op) {
  running_operator = op;
  running_instruction = (int32_t)instruction;
}

static void leave(void) {
  running_instruction = -1;
  running_operator = "";
}

static bool step(hil_execution* execution) {
  bool good;
  hil_pmu_start();
  const uint64_t ticks = ticks_of(hil_runtime_step, &execution->done, &good);
  hil_pmu_stop();
  execution->ticks += ticks > measuring ? ticks - measuring : 0;
  return good;
}

bool hil_execute(uint32_t count, void (*before)(uint32_t instruction), hil_execution* execution) {
  hil_pmu_clear();
  execution->ticks = 0;
  execution->done = hil_runtime_shape().instructions == 0;
  for (uint32_t i = 0; i < count && !execution->done && !hil_host_is_gone(); ++i) {
    const uint32_t instruction = hil_runtime_program_counter();
    before(instruction);
    enter(instruction, hil_runtime_instruction_operator(instruction));
    const bool good = step(execution);
    leave();
    if (!good) {
      hil_runtime_rewind();
      return false;
    }
  }
  return true;
}

int32_t hil_current_instruction(void) { return running_instruction; }

const char* hil_current_operator(void) { return running_operator; }
