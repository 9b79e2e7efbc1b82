// The runtime that is linked, as target_library/runtime_interface.h has it.
#include "runtime/arenas.h"
#include "runtime/runtime.h"

using hil::runtime;

void hil_runtime_init(const hil_bank* banks, size_t count, size_t unplanned, hil_memory method,
                      hil_memory temp) {
  hil::Bank granted[hil::kMaxBanks];
  if (count > hil::kMaxBanks) count = hil::kMaxBanks;
  for (size_t i = 0; i < count; ++i) {
    granted[i].region = banks[i].region;
    granted[i].memory = {banks[i].memory.data, banks[i].memory.size};
    granted[i].holds_unplanned = i == unplanned;
  }
  runtime().init({granted, count}, {method.data, method.size}, {temp.data, temp.size});
}

const char* hil_runtime_name() { return runtime().name(); }

const char* hil_runtime_version() { return runtime().version(); }

size_t hil_runtime_operator_count() { return runtime().operator_count(); }

const char* hil_runtime_operator_name(size_t number) { return runtime().operator_name(number); }

bool hil_runtime_load(const uint8_t* program, size_t size, const char* method) {
  return runtime().load({program, size}, method);
}

void hil_runtime_unload() { runtime().unload(); }

bool hil_runtime_loaded() { return runtime().loaded(); }

hil_program_shape hil_runtime_shape() { return runtime().shape(); }

size_t hil_runtime_banks() { return runtime().arenas().banks(); }

hil_memory hil_runtime_bank(size_t number) {
  const hil::Span<uint8_t> bank = runtime().arenas().bank(number);
  return {bank.data, bank.size};
}

hil_memory hil_runtime_planned(size_t number) {
  const hil::Span<uint8_t> planned = runtime().arenas().planned(number);
  return {planned.data, planned.size};
}

bool hil_runtime_value(uint32_t index, hil_value* value) { return runtime().value(index, value); }

bool hil_runtime_input(uint32_t number, hil_value* value) { return runtime().input(number, value); }

bool hil_runtime_output(uint32_t number, hil_value* value) {
  return runtime().output(number, value);
}

bool hil_runtime_resize_input(uint32_t number, const int32_t* sizes, size_t rank) {
  return runtime().resize_input(number, {sizes, rank});
}

bool hil_runtime_step(bool* done) { return runtime().step(done); }

void hil_runtime_rewind() { runtime().rewind(); }

uint32_t hil_runtime_program_counter() { return runtime().program_counter(); }

const char* hil_runtime_instruction_operator(uint32_t instruction) {
  return runtime().instruction_operator(instruction);
}

size_t hil_runtime_method_used() { return runtime().method_used(); }

size_t hil_runtime_temp_used() { return runtime().temp_used(); }

const hil_failure* hil_runtime_failure() { return &runtime().failure(); }
