// The loaded program and its execution, the same for serving and one-shot.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/runtime.h"

namespace hil {

constexpr uint32_t kToTheEnd = 0xFFFFFFFF;

struct Execution {
  uint64_t ticks = 0;  // inside the runtime only
  bool done = false;
};

using BeforeInstruction = void (*)(uint32_t instruction);

void init_runtime();

// `program` lies in the program pool, from its start, or in the resident area; `method` as in
// Runtime::load. false: runtime().failure() says why.
bool load_program(Span<const uint8_t> program, const char* method);
void unload_program();
size_t program_used();  // bytes, 0 if nothing is loaded

// At most `count` instructions from where the program stands. false: runtime().failure() says why,
// and the program is back at its start.
bool execute(uint32_t count, BeforeInstruction before, Execution* execution);

// For fault reports: -1 and "" outside an instruction.
int32_t current_instruction();
const char* current_operator();

}  // namespace hil
