// An ExecutionPlan in a .pte, one for each method: parts that ExecuTorch's C++ interface does not
// give.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/runtime.h"

namespace hil::executorch_runtime {

class Plan {
 public:
  // Verifies every FlatBuffers offset in `program`, and takes its method of that name, of "" the
  // first. Refuses, into `failure`, what this runner cannot drive: several chains, delegates.
  bool open(Span<const uint8_t> program, const char* method, Failure* failure);
  void close() { plan_ = nullptr; }

  const char* method() const;
  uint32_t inputs() const;
  uint32_t outputs() const;
  uint32_t instructions() const;
  uint32_t operators() const;
  // EValue indices, -1 beyond the end. Not checked against the number of values.
  int32_t input(uint32_t number) const;
  int32_t output(uint32_t number) const;

  // `namespace::name.overload`, as the registry knows it, or "". The text lives until the next
  // call.
  const char* operator_name(uint32_t op) const;
  const char* instruction_operator(uint32_t instruction) const;

 private:
  const void* plan_ = nullptr;  // executorch_flatbuffer::ExecutionPlan
};

}  // namespace hil::executorch_runtime
