#include "runner/statistics.h"

#include "platform/stack.h"
#include "runner/executor.h"
#include "runner/pools.h"

namespace hil {
namespace {

// The usage by the loaded program; `used` is not called without one.
template <typename Used>
Usage of_program(const Used& used, Span<uint8_t> pool) {
  return {runtime().loaded() ? used() : size_t{0}, pool.size};
}

Usage program() { return {program_used(), program_pool().size}; }

Usage planned() {
  return of_program([] { return size_t{runtime().shape().planned}; }, planned_pool());
}

Usage method() {
  return of_program([] { return runtime().method_used(); }, method_pool());
}

Usage stack() {
  const StackUse use = stack_use();
  return {use.used, use.size};
}

Usage temp() {
  return of_program([] { return runtime().temp_used(); }, method_pool());
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
