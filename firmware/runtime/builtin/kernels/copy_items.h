// Items of any dtype, copied from where a walk says.
#pragma once

#include <cstring>

#include "runtime/builtin/kernels/walk.h"

namespace hil::builtin {

inline void copy_item(uint8_t* to, uint32_t at, const uint8_t* from, uint32_t from_at,
                      uint32_t size) {
  std::memcpy(to + size_t{at} * size, from + size_t{from_at} * size, size);
}

// `to` is filled from where `walk`, which goes along it, says; counted from item `start` of `from`.
void copy_from(const Tensor& from, uint32_t start, Walk<1>& walk, const Tensor& to);

// All of `from` goes to where `walk`, which goes along it, says; counted from item `start` of `to`.
void copy_to(const Tensor& from, Walk<1>& walk, uint32_t start, const Tensor& to);

// The shapes are equal, the dim orders may differ.
void copy_reordered(const Tensor& from, const Tensor& to);

// Is `out` of the shape of `self` but for dimension `axis`, which has `size`?
bool differs_in(const Tensor& self, const Tensor& out, int axis, uint64_t size);

}  // namespace hil::builtin
