// A .pte as bytes: header, FlatBuffers structure, segments.
#pragma once

#include "runtime/builtin/schema.h"
#include "runtime/runtime.h"

namespace hil::builtin {

// Every FlatBuffers offset in `program` stays inside the file. What the fields mean is not checked.
struct ProgramFile {
  const schema::Program* program = nullptr;
  Span<const uint8_t> constants;  // the constant segment; empty if the program has none
  Span<const uint8_t> states;     // the segment of initial values of mutable tensors; may be empty
};

bool open_program(Span<const uint8_t> bytes, ProgramFile* file, Failure* failure);

// The method of that name, of "" the first. nullptr: there is none, or names are equal, so that it
// is not clear which is meant.
const schema::ExecutionPlan* find_method(const ProgramFile& file, const char* name,
                                         Failure* failure);

// The `nbytes` bytes of constant `index`, aligned to `alignment`.
bool find_constant(const ProgramFile& file, uint32_t index, uint32_t nbytes, uint32_t alignment,
                   const uint8_t** data, Failure* failure);

// The `nbytes` bytes that mutable tensor `index` begins with.
bool find_state(const ProgramFile& file, uint32_t index, uint32_t nbytes, const uint8_t** data,
                Failure* failure);

}  // namespace hil::builtin
