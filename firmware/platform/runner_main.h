#pragma once

namespace hil {

// Called by the platform after its start-up; returns the exit status. argv[0] is the runner.
int runner_main(int argc, const char* const* argv);

}  // namespace hil
