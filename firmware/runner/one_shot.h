#pragma once

namespace hil {

// True if the command line asks for one program to be run from files.
bool wants_one_shot(int argc, const char* const* argv);

// Returns the exit status.
int one_shot(int argc, const char* const* argv);

}  // namespace hil
