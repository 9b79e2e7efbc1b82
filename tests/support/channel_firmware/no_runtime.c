// A runtime that has no operators and loads nothing: enough for channels.
#include "target_library/runtime_interface.h"

static const hil_bank* granted;
static size_t granted_count;
static const hil_failure refused = {HIL_STATUS_PROGRAM_REJECTED, -1, 0, 0, "", "no programs here"};

void hil_runtime_init(const hil_bank* banks, size_t count, size_t unplanned, hil_memory method, hil_memory temp) {
  (void)unplanned;
  (void)method;
  (void)temp;
  granted = banks;
  granted_count = count;
}
const char* hil_runtime_name(void) { return "builtin"; }
const char* hil_runtime_version(void) { return "0"; }
size_t hil_runtime_operator_count(void) { return 0; }
const char* hil_runtime_operator_name(size_t number) { return number == 0 ? "" : NULL; }
bool hil_runtime_load(const uint8_t* program, size_t size, const char* method) {
  return program == NULL && size == 0 && method == NULL;
}
void hil_runtime_unload(void) {}
bool hil_runtime_loaded(void) { return false; }
hil_program_shape hil_runtime_shape(void) {
  const hil_program_shape none = {0, 0, 0, 0};
  return none;
}
size_t hil_runtime_banks(void) { return granted_count; }
hil_memory hil_runtime_bank(size_t number) { return granted[number].memory; }
hil_memory hil_runtime_planned(size_t number) {
  const hil_memory none = {granted[number].memory.data, 0};
  return none;
}
bool hil_runtime_value(uint32_t index, hil_value* value) { return index > 0 && value == NULL; }
bool hil_runtime_input(uint32_t number, hil_value* value) { return number > 0 && value == NULL; }
bool hil_runtime_output(uint32_t number, hil_value* value) { return number > 0 && value == NULL; }
bool hil_runtime_resize_input(uint32_t number, const int32_t* sizes, size_t rank) {
  return number > 0 && sizes == NULL && rank > 0;
}
bool hil_runtime_step(bool* done) {
  *done = true;
  return true;
}
void hil_runtime_rewind(void) {}
uint32_t hil_runtime_program_counter(void) { return 0; }
const char* hil_runtime_instruction_operator(uint32_t instruction) { return instruction == 0 ? "" : ""; }
size_t hil_runtime_method_used(void) { return 0; }
size_t hil_runtime_temp_used(void) { return 0; }
const hil_failure* hil_runtime_failure(void) { return &refused; }
