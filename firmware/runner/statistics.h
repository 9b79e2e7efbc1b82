// What the runner measures of a program besides its ticks.
#pragma once

#include <cstdint>

#include "runtime/runtime.h"

namespace hil {

// At the peak, and what there is; a size of 0: no bound, or not measured.
struct Usage {
  size_t used = 0;
  size_t size = 0;
};

// A row in statistics.cpp, and one of this name in the host's `results.STATISTICS`.
struct Statistic {
  const char* name;
  Usage (*read)();
};

Span<const Statistic> statistics();

}  // namespace hil
