// A bump allocator over one pool. Nothing is freed but everything at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include "runtime/runtime.h"

namespace hil::builtin {

class BumpAllocator {
 public:
  BumpAllocator() = default;
  explicit BumpAllocator(Span<uint8_t> pool) : pool_(pool) {}

  // Value-initialised, or nullptr. Once it has failed it goes on counting, so that requested() is
  // what the program needed as far as it got.
  template <typename T>
  T* allocate(size_t count) {
    // NOLINTNEXTLINE(bugprone-sizeof-expression): T may well be a pointer
    uint8_t* place = reserve(uint64_t{count} * sizeof(T), alignof(T));
    if (place == nullptr) return nullptr;
    T* first = reinterpret_cast<T*>(place);
    for (size_t i = 0; i < count; ++i) new (first + i) T();
    return first;
  }

  void reset() { used_ = 0; }
  uint64_t requested() const { return used_; }
  size_t size() const { return pool_.size; }

 private:
  uint8_t* reserve(uint64_t bytes, size_t alignment) {
    const uint64_t base = reinterpret_cast<uintptr_t>(pool_.data);
    const uint64_t start = ((base + used_ + alignment - 1) & ~uint64_t{alignment - 1}) - base;
    used_ = start + bytes;
    return used_ <= pool_.size ? pool_.data + start : nullptr;
  }

  Span<uint8_t> pool_;
  uint64_t used_ = 0;
};

}  // namespace hil::builtin
