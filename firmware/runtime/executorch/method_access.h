// Access to parts of a Method that its public interface does not give: any value by its index
// (to compare and to localise after each step), the instruction that comes next, and a way back to
// the first one after a failure, where reset_execution() refuses.
//
// Access checks do not apply to the arguments of an explicit instantiation ([temp.spec]), so this
// is plain C++ and needs no change of ExecuTorch. It depends on the names and types of three
// private members; CMakeLists.txt compiles this file alone first and says so where a version has
// them no more.
#pragma once

#include <executorch/runtime/executor/method.h>

#include <cstddef>
#include <type_traits>

namespace hil::executorch_runtime {

using executorch::runtime::EValue;
using executorch::runtime::Method;

size_t value_count(const Method& method);
EValue* method_values(Method& method);
size_t next_chain(const Method& method);
size_t next_instruction(const Method& method);
void restart(Method& method);

template <auto kCount, auto kValues, auto kStep>
struct MethodAccess {
  friend size_t value_count(const Method& method) { return method.*kCount; }
  friend EValue* method_values(Method& method) { return method.*kValues; }
  friend size_t next_chain(const Method& method) { return (method.*kStep).chain_idx; }
  friend size_t next_instruction(const Method& method) { return (method.*kStep).instr_idx; }
  friend void restart(Method& method) { method.*kStep = {}; }
};

template struct MethodAccess<&Method::n_value_, &Method::values_, &Method::step_state_>;

}  // namespace hil::executorch_runtime
