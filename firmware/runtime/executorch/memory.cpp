#include "runtime/executorch/memory.h"

namespace hil::executorch_runtime {
namespace {

bool is_power_of_two(size_t number) { return number != 0 && (number & (number - 1)) == 0; }

}  // namespace

void Pool::reset() {
  low_ = 0;
  high_ = bytes_.size;
  high_peak_ = 0;
  refused_ = 0;
}

void* Pool::refuse(size_t size) {
  const size_t taken = low_ + (bytes_.size - high_);
  if (refused_ == 0) refused_ = size > SIZE_MAX - taken ? SIZE_MAX : taken + size;
  return nullptr;
}

void* Pool::take_low(size_t size, size_t alignment) {
  if (!is_power_of_two(alignment)) return nullptr;
  const uintptr_t base = reinterpret_cast<uintptr_t>(bytes_.data);
  const size_t start = ((base + low_ + alignment - 1) & ~(alignment - 1)) - base;
  if (start > high_ || size > high_ - start) return refuse(size);
  low_ = start + size;
  return bytes_.data + start;
}

void* Pool::take_high(size_t size, size_t alignment) {
  if (!is_power_of_two(alignment)) return nullptr;
  if (size > high_ - low_) return refuse(size);
  const uintptr_t base = reinterpret_cast<uintptr_t>(bytes_.data);
  const uintptr_t start = (base + high_ - size) & ~(alignment - 1);
  if (start < base + low_) return refuse(size);
  high_ = start - base;
  if (bytes_.size - high_ > high_peak_) high_peak_ = bytes_.size - high_;
  return bytes_.data + high_;
}

}  // namespace hil::executorch_runtime
