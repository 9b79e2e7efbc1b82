// The pools of memory, sized by the build.
#pragma once

#include "target_library/hil_target.h"

namespace hil {

// For programs, planned buffers and the runtime; and flash beside the runner where there is any.
void grant_pools(hil_target* target);

}  // namespace hil
