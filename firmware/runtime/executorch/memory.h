// ExecuTorch's two allocators. What lives as long as the method grows up from the start of a pool,
// what lives for one kernel grows down from the end: of the same pool, so that neither needs a size
// of its own, or of another where the board has `temp:` (docs/memory.md). Both have a peak.
#pragma once

#include <executorch/runtime/core/memory_allocator.h>

#include <cstddef>
#include <cstdint>

#include "runtime/runtime.h"

namespace hil::executorch_runtime {

class Pool {
 public:
  explicit Pool(Span<uint8_t> bytes) : bytes_(bytes) { reset(); }

  void* take_low(size_t size, size_t alignment);
  void* take_high(size_t size, size_t alignment);
  void reset();
  void reset_high() { high_ = bytes_.size; }
  // What was taken before is freed; `take_low` failed since the last reset if refused() is not 0.
  size_t low_used() const { return low_; }
  size_t high_peak() const { return high_peak_; }
  size_t size() const { return bytes_.size; }
  uint8_t* data() const { return bytes_.data; }
  size_t refused() const { return refused_; }

 private:
  void* refuse(size_t size);

  Span<uint8_t> bytes_;
  size_t low_ = 0;
  size_t high_ = 0;
  size_t high_peak_ = 0;
  size_t refused_ = 0;  // bytes needed in all by the first request that found no room
};

class MethodAllocator final : public executorch::runtime::MemoryAllocator {
 public:
  explicit MethodAllocator(Pool* pool)
      : MemoryAllocator(static_cast<uint32_t>(pool->size()), pool->data()), pool_(pool) {}

  void* allocate(size_t size, size_t alignment = kDefaultAlignment) override {
    return pool_->take_low(size, alignment);
  }

 private:
  Pool* pool_;
};

class TempAllocator final : public executorch::runtime::MemoryAllocator {
 public:
  explicit TempAllocator(Pool* pool)
      : MemoryAllocator(static_cast<uint32_t>(pool->size()), pool->data()), pool_(pool) {}

  void* allocate(size_t size, size_t alignment = kDefaultAlignment) override {
    return pool_->take_high(size, alignment);
  }
  void reset() override { pool_->reset_high(); }

 private:
  Pool* pool_;
};

}  // namespace hil::executorch_runtime
