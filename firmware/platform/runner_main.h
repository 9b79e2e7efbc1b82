#pragma once

namespace hil {

// What the platform calls once it is up; the result is the exit status. argv[0] is the runner.
int runner_main(int argc, const char* const* argv);

}  // namespace hil
