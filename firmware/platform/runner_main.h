#pragma once

namespace hil {

// Before constructors run: from then on the end of the firmware can be reported.
void prepare_target();

// Called by the platform after its start-up; returns the exit status. argv[0] is the runner.
int runner_main(int argc, const char* const* argv);

}  // namespace hil
