#include "runner/statistics.h"

#include "platform/stack.h"
#include "runner/executor.h"
#include "runner/pools.h"
#include "runtime/arenas.h"

namespace hil {
namespace {

size_t planned_room() {
  size_t sum = 0;
  const Span<const Bank> all = banks();
  for (size_t i = 0; i < all.size; ++i) sum += all.data[i].memory.size;
  return sum;
}

// The usage by the loaded program; `used` is not called without one.
template <typename Used>
Usage of_program(const Used& used, size_t size) {
  return {runtime().loaded() ? used() : size_t{0}, size};
}

Usage program() { return {program_used(), program_pool().size}; }

Usage planned() {
  return of_program([] { return size_t{runtime().arenas().planned_bytes()}; }, planned_room());
}

Usage method() {
  return of_program([] { return runtime().method_used(); }, method_pool().size);
}

Usage stack() {
  const StackUse use = stack_use();
  return {use.used, use.size};
}

Usage temp() {
  const size_t own = temp_pool().size;
  return of_program([] { return runtime().temp_used(); }, own > 0 ? own : method_pool().size);
}

constexpr Statistic kStatistics[] = {
    {"program", program}, {"planned", planned}, {"method", method},
    {"stack", stack},     {"temp", temp},
};

}  // namespace

Span<const Statistic> statistics() {
  return {kStatistics, sizeof(kStatistics) / sizeof(Statistic)};
}

}  // namespace hil
