// The peaks of memory use that the runner measures, besides ticks.
#pragma once

#include <cstdint>

#include "runtime/runtime.h"

namespace hil {

// The peak use and the size in bytes; a size of 0: no bound, or not measured.
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
