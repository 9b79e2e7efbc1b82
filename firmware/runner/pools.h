// The pools of memory; their sizes come from `memory:` in board.yaml.
#pragma once

#include "target_library/hil_target.h"

namespace hil {

// For programs, planned buffers and the runtime; and flash beside the runner where there is any.
void grant_pools(hil_target* target);

}  // namespace hil
