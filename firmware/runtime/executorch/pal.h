// ExecuTorch's platform layer as a target has it: its log lines become LOG events, its abort a
// FATAL one.
#pragma once

#include <cstddef>

namespace hil::executorch_runtime {

// The first error that ExecuTorch logged since the last call of forget_error(), "" if none.
const char* first_error();
void forget_error();

}  // namespace hil::executorch_runtime
