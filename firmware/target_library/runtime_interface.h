// What executes programs, as the library calls it: runtime/c_interface.cpp has it for `builtin` and
// for `executorch`, whichever is linked.
#ifndef HIL_RUNTIME_INTERFACE_H
#define HIL_RUNTIME_INTERFACE_H

#include "target_library/hil_target.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  HIL_MAX_RANK = 16,
  HIL_MAX_BANKS = 8,  // MAX_BANKS in harness/cortex_m_hil/targets/memory.py
};

// Why something did not work. Text is truncated to fit.
typedef struct hil_failure {
  hil_status code;
  int32_t instruction;  // -1: none
  uint64_t requested;   // bytes
  uint64_t available;   // bytes
  char op[96];
  char message[768];
} hil_failure;

// A value as the host sees it. `data` may be written only if `writable`.
typedef struct hil_value {
  uint8_t kind;   // hil_kind
  uint8_t dtype;  // ExecuTorch's ScalarType
  uint8_t rank;
  bool writable;
  int32_t sizes[HIL_MAX_RANK];
  uint8_t dim_order[HIL_MAX_RANK];
  hil_memory data;
} hil_value;

typedef struct hil_program_shape {
  uint16_t inputs;
  uint16_t outputs;
  uint32_t values;
  uint32_t instructions;
} hil_program_shape;

// `banks` hold activations, the one of number `unplanned` also inputs and outputs that a program
// leaves to its caller; `temp` what a kernel takes and gives back, `method` everything else that
// the runtime needs for one program, and the former too where `temp` is empty. May be called again:
// it forgets the program.
void hil_runtime_init(const hil_bank* banks, size_t count, size_t unplanned, hil_memory method,
                      hil_memory temp);

const char* hil_runtime_name(void);
const char* hil_runtime_version(void);
size_t hil_runtime_operator_count(void);
const char* hil_runtime_operator_name(size_t number);

// Verifies `program` (aligned to 16, stays in place until unload) and prepares its method of that
// name; of "" its first. false: hil_runtime_failure() says why, and no program is loaded.
bool hil_runtime_load(const uint8_t* program, size_t size, const char* method);
void hil_runtime_unload(void);
bool hil_runtime_loaded(void);
hil_program_shape hil_runtime_shape(void);

// A bank, and what the planned buffers of the loaded program take of it, from its start.
size_t hil_runtime_banks(void);
hil_memory hil_runtime_bank(size_t number);
hil_memory hil_runtime_planned(size_t number);

bool hil_runtime_value(uint32_t index, hil_value* value);
bool hil_runtime_input(uint32_t number, hil_value* value);
bool hil_runtime_output(uint32_t number, hil_value* value);
// Gives an input tensor other sizes, until the next one or a load. false: hil_runtime_failure()
// says why.
bool hil_runtime_resize_input(uint32_t number, const int32_t* sizes, size_t rank);

// Executes the instruction at the program counter. *done is set after the last one, and the
// counter is back at 0.
bool hil_runtime_step(bool* done);
void hil_runtime_rewind(void);
uint32_t hil_runtime_program_counter(void);
// Name of the operator of an instruction, "" if it has none. For fault reports.
const char* hil_runtime_instruction_operator(uint32_t instruction);

// Bytes at the peak: of what lives as long as the program, and of what lived for one instruction.
size_t hil_runtime_method_used(void);
size_t hil_runtime_temp_used(void);
const hil_failure* hil_runtime_failure(void);

#ifdef __cplusplus
}
#endif

#endif
