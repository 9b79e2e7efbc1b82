#pragma once

namespace hil {

// Answers requests until the console ends. Returns the exit status.
int serve();

}  // namespace hil
