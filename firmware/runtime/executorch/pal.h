// ExecuTorch's platform layer as this runner has it: its log lines become LOG events, its abort a
// FATAL one.
#pragma once

#include <cstddef>

namespace hil::executorch_runtime {

// Sends log lines from now on. Before, while static objects register operators, there is no
// console.
void open_log();

// The first error that ExecuTorch logged since the last call of forget_error(), "" if none.
const char* first_error();
void forget_error();

}  // namespace hil::executorch_runtime
