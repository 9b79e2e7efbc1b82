// A program made ready to execute. Every index in it has been checked.
#pragma once

#include "runtime/builtin/registry.h"
#include "runtime/builtin/value.h"

namespace hil::builtin {

enum class Opcode : uint8_t { kKernel, kMove, kJumpFalse, kFree };

struct Instruction {
  Opcode opcode = Opcode::kFree;
  const Operator* op = nullptr;  // kKernel
  Span<const int32_t> args;      // kKernel: indices of values; the last is the result, again
  uint32_t from = 0;             // kMove; kJumpFalse: the condition
  uint32_t to = 0;               // kMove; kJumpFalse: the instruction jumped to
};

struct Method {
  Span<Value> values;
  Span<Instruction> instructions;
  Span<const int32_t> inputs;   // indices of values
  Span<const int32_t> outputs;  // indices of values
};

}  // namespace hil::builtin
