// ATen's views, which ExecuTorch turns into copies, and copies that indices choose: any dtype.
#include "runtime/builtin/kernel.h"
#include "runtime/builtin/kernels/broadcast.h"
#include "runtime/builtin/kernels/copy_items.h"
#include "runtime/builtin/kernels/portable.h"

namespace hil::builtin {
namespace {

bool check_contiguous(KernelContext& ctx, const Tensor& self, const Tensor& out) {
  return ctx.require(is_row_major(self) && is_row_major(out), "self is ", self, ", out is ", out,
                     ": not contiguous") &&
         ctx.require_disjoint(out, self, "self");
}

// Is `out` of the shape of `self` but for dimension `axis`, which has `size`?
bool differs_in(const Tensor& self, const Tensor& out, int axis, uint64_t size) {
  bool same = out.rank == self.rank;
  for (int i = 0; same && i < out.rank; ++i) {
    same = out.size(i) == (i == axis ? size : self.size(i));
  }
  return same;
}

// Part `start` to `start + (size of out - 1) * step` of dimension `axis`.
void copy_part_of(const Tensor& self, int axis, uint32_t start, uint32_t step, const Tensor& out) {
  Strides strides = {};
  strides_of(self, strides);
  Walk<1> walk(out);
  for (int i = 0; i < out.rank; ++i) walk.strides(0)[i] = strides[i] * (i == axis ? step : 1);
  copy_from(self, start * strides[axis], walk, out);
}

// Fills `out` with copies of `self`, whose sizes are `sizes` where it has as many dimensions.
void copy_repeatedly(const Tensor& self, const uint32_t (&sizes)[kMaxRank], const Walk<1>& inside,
                     const Tensor& out) {
  if (out.numel == 0) return;
  const uint32_t size = item_size(out.dtype);
  Strides strides = {};
  strides_of(out, strides);
  uint32_t position[kMaxRank] = {};
  uint32_t start = 0;
  for (uint32_t copy = 0; copy < out.numel / self.numel; ++copy) {
    Walk<1> walk = inside;
    for (uint32_t i = 0; i < self.numel; ++i, walk.next()) {
      copy_item(out.data, start + walk.at(0), self.data, i, size);
    }
    for (int axis = out.rank - 1; axis >= 0; --axis) {
      position[axis] += sizes[axis];
      start += sizes[axis] * strides[axis];
      if (position[axis] < out.size(axis)) break;
      start -= out.size(axis) * strides[axis];
      position[axis] = 0;
    }
  }
}

// An end of a slice: from the end if negative, and no further than the ends of the dimension.
int64_t slice_end(KernelContext& ctx, const Argument& argument, uint32_t size, int64_t absent) {
  if (argument.is_none()) return absent;
  const int64_t given = ctx.integer(argument);
  const int64_t from_start = given < 0 ? given + size : given;
  return from_start < 0 ? 0 : from_start > size ? size : from_start;
}

// Indices

// The index of a row, checked; -1 after a failure.
int64_t index_at(KernelContext& ctx, const Tensor& indices, uint32_t place, uint32_t size,
                 bool from_end) {
  const int64_t given =
      indices.dtype == DType::kInt64 ? indices.as<int64_t>()[place] : indices.as<int32_t>()[place];
  const int64_t index = given < 0 && from_end ? given + size : given;
  const bool inside = ctx.require(index >= 0 && index < size, "index ", given, " of ", size,
                                  " items of the dimension");
  return inside ? index : -1;
}

bool check_indices(KernelContext& ctx, const Tensor& indices, const Tensor& out) {
  return ctx.require(indices.dtype == DType::kInt64 || indices.dtype == DType::kInt32,
                     "indices are ", indices, ", the operator takes int64 or int32") &&
         ctx.require_disjoint(out, indices, "indices");
}

constexpr int kMaxIndices = 4;

// The dimensions of index.Tensor that have indices: `count` of them from `first` on, whose indices
// broadcast to `rank` dimensions of out, which stand in their place.
struct Indexed {
  int first = 0;
  int count = 0;
  int rank = 0;
};

bool find_indexed(KernelContext& ctx, const OptionalTensorList& indices, const Tensor& self,
                  Indexed* found) {
  if (!ctx.require(indices.size() <= self.rank, "indices has ", indices.size(), " items, self is ",
                   self)) {
    return false;
  }
  for (uint32_t i = 0; i < indices.size(); ++i) {
    if (indices[i] == nullptr) continue;
    const int axis = static_cast<int>(i);
    if (found->count == 0) found->first = axis;
    if (!ctx.require(axis == found->first + found->count,
                     "indices of dimensions that are not neighbours")) {
      return false;
    }
    ++found->count;
    if (indices[i]->rank > found->rank) found->rank = indices[i]->rank;
  }
  return ctx.require(found->count >= 1 && found->count <= kMaxIndices, "indices has ", found->count,
                     " tensors, the operator takes 1 to ", kMaxIndices);
}

// Is `out` of the shape that self and indices give? Fills in where its items lie in self but for
// the indices, and where in each of these.
bool place_indexed(const Tensor& self, const OptionalTensorList& indices, const Indexed& indexed,
                   const Tensor& out, Walk<1>& base, Walk<kMaxIndices>& places) {
  if (out.rank != self.rank - indexed.count + indexed.rank) return false;
  Strides own = {};
  strides_of(self, own);
  for (int axis = 0; axis < self.rank; ++axis) {
    if (axis >= indexed.first && axis < indexed.first + indexed.count) continue;
    const int to = axis < indexed.first ? axis : axis - indexed.count + indexed.rank;
    if (out.size(to) != self.size(axis)) return false;
    base.strides(0)[to] = own[axis];
  }
  for (int i = 0; i < indexed.count; ++i) {
    const Tensor& index = *indices[static_cast<uint32_t>(indexed.first + i)];
    Strides strides = {};
    strides_of(index, strides);
    for (int axis = 0; axis < index.rank; ++axis) {
      const int to = indexed.first + indexed.rank - index.rank + axis;
      if (index.size(axis) != 1 && index.size(axis) != out.size(to)) return false;
      places.strides(i)[to] = index.size(axis) == 1 ? 0 : strides[axis];
    }
  }
  // No dimension of out is longer than that of all indices.
  for (int to = indexed.first; to < indexed.first + indexed.rank; ++to) {
    uint32_t moves = 0;
    for (int i = 0; i < indexed.count; ++i) moves |= places.strides(i)[to];
    if (moves == 0 && out.size(to) > 1) return false;
  }
  return true;
}

}  // namespace

// aten::view_copy.out(Tensor self, SymInt[] size, *, Tensor(a!) out)
void view_copy(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  ctx.int_list("size");  // is that of out, with a -1 perhaps
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done()) return;
  if (ctx.require(self.numel == out.numel, "self is ", self, ", out is ", out,
                  ": the number of items differs") &&
      check_contiguous(ctx, self, out)) {
    std::memcpy(out.data, self.data, self.nbytes);
  }
}

// aten::squeeze_copy.dims_out(Tensor self, int[] dim, *, Tensor(a!) out)
void squeeze_copy(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const IntList dims = ctx.int_list("dim");
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done()) return;
  const Axes axes = axes_of(ctx, dims, self.rank);
  if (!ctx.ok()) return;
  Strides strides = {};
  strides_of(self, strides);
  Walk<1> walk(out);
  int to = 0;
  bool fits = true;
  for (int axis = 0; fits && axis < self.rank; ++axis) {
    if ((axes >> axis & 1) != 0 && self.size(axis) == 1) continue;
    fits = to < out.rank && out.size(to) == self.size(axis);
    if (fits) walk.strides(0)[to++] = strides[axis];
  }
  if (ctx.require(fits && to == out.rank, "self is ", self, ", out is ", out,
                  ": not self without those of its dimensions that have size 1") &&
      ctx.require_disjoint(out, self, "self")) {
    copy_from(self, 0, walk, out);
  }
}

// aten::expand_copy.out(Tensor self, SymInt[] size, *, bool implicit=False, Tensor(a!) out)
void expand_copy(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  ctx.int_list("size");  // is that of out, with some -1 perhaps
  ctx.boolean("implicit");
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done()) return;
  Walk<1> walk(out);
  if (ctx.require(broadcast_strides(self, out, walk.strides(0)), "self is ", self, ", out is ", out,
                  ": the shape does not broadcast") &&
      ctx.require_disjoint(out, self, "self")) {
    copy_from(self, 0, walk, out);
  }
}

// aten::repeat.out(Tensor self, SymInt[] repeats, *, Tensor(a!) out)
void repeat(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const IntList repeats = ctx.int_list("repeats");
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done()) return;
  bool fits = repeats.size() == out.rank && out.rank >= self.rank;
  Strides strides = {};
  strides_of(out, strides);
  Walk<1> inside(self);           // a copy of self in out
  uint32_t sizes[kMaxRank] = {};  // of self, with the dimensions that it has not
  for (int axis = 0; fits && axis < out.rank; ++axis) {
    const int own = axis - (out.rank - self.rank);
    sizes[axis] = own < 0 ? 1 : self.size(own);
    const int64_t times = repeats[static_cast<uint32_t>(axis)];
    fits = times >= 0 && times <= INT32_MAX && times * sizes[axis] == out.size(axis);
    if (own >= 0) inside.strides(0)[own] = strides[axis];
  }
  if (!ctx.require(fits, "self is ", self, ", out is ", out,
                   ": not self as often as repeats says") ||
      !ctx.require_disjoint(out, self, "self")) {
    return;
  }
  copy_repeatedly(self, sizes, inside, out);
}

// aten::slice_copy.Tensor_out(Tensor self, int dim=0, SymInt? start=None, SymInt? end=None,
//     SymInt step=1, *, Tensor(a!) out)
void slice_copy(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const Argument dim = ctx.any("dim");
  const Argument first = ctx.any("start");
  const Argument last = ctx.any("end");
  const int32_t step = ctx.integer("step", 1, INT32_MAX);
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done() || !ctx.require(self.rank > 0, "self is ", self, ": no dimension to slice")) {
    return;
  }
  const int axis = ctx.axis(dim, self.rank);
  const uint32_t size = self.size(axis);
  const int64_t start = slice_end(ctx, first, size, 0);
  const int64_t end = slice_end(ctx, last, size, size);
  if (!ctx.ok()) return;
  const int64_t count = end > start ? (end - start - 1) / step + 1 : 0;
  if (ctx.require(differs_in(self, out, axis, static_cast<uint64_t>(count)), "self is ", self,
                  ", out is ", out, ": the slice has ", count, " items of dimension ", axis) &&
      ctx.require_disjoint(out, self, "self")) {
    copy_part_of(self, axis, static_cast<uint32_t>(start), static_cast<uint32_t>(step), out);
  }
}

// aten::split_with_sizes_copy.out(Tensor self, SymInt[] split_sizes, int dim=0, *,
//     Tensor(a!)[] out)
void split_with_sizes_copy(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const IntList sizes = ctx.int_list("split_sizes");
  const Argument dim = ctx.any("dim");
  const TensorList out = ctx.out_list();
  if (!ctx.done() || !ctx.require(self.rank > 0, "self is ", self, ": no dimension to split") ||
      !ctx.require(sizes.size() == out.size(), "split_sizes has ", sizes.size(), " items, out ",
                   out.size())) {
    return;
  }
  const int axis = ctx.axis(dim, self.rank);
  uint64_t start = 0;
  for (uint32_t i = 0; ctx.ok() && i < out.size(); ++i) {
    const uint64_t size = out[i].rank == self.rank ? out[i].size(axis) : 0;
    if (!ctx.require(out[i].dtype == self.dtype && sizes[i] == static_cast<int64_t>(size) &&
                         differs_in(self, out[i], axis, size) && start + size <= self.size(axis),
                     "self is ", self, ", out item ", i, " is ", out[i], ": not its part of ",
                     sizes[i], " of dimension ", axis) ||
        !ctx.require_disjoint(out[i], self, "self")) {
      return;
    }
    copy_part_of(self, axis, static_cast<uint32_t>(start), 1, out[i]);
    start += size;
  }
}

// aten::flip.out(Tensor self, int[] dims, *, Tensor(a!) out)
void flip(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const IntList dims = ctx.int_list("dims");
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done() || !check_alike(ctx, self, out)) return;
  const Axes axes = axes_of(ctx, dims, self.rank);
  if (!ctx.ok() || self.numel == 0) return;
  Strides strides = {};
  strides_of(self, strides);
  Walk<1> walk(out);
  uint32_t start = 0;
  for (int axis = 0; axis < self.rank; ++axis) {
    const bool flipped = (axes >> axis & 1) != 0;
    if (flipped) start += (self.size(axis) - 1) * strides[axis];
    walk.strides(0)[axis] = flipped ? 0 - strides[axis] : strides[axis];  // counts modulo 2^32
  }
  copy_from(self, start, walk, out);
}

// aten::as_strided_copy.out(Tensor self, SymInt[] size, SymInt[] stride,
//     SymInt? storage_offset=None, *, Tensor(a!) out): strides in items of self as it lies in
//     memory.
void as_strided_copy(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const IntList size = ctx.int_list("size");
  const IntList stride = ctx.int_list("stride");
  const Argument offset = ctx.any("storage_offset");
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done() ||
      !ctx.require(has_sizes(out, size) && stride.size() == size.size(), "out is ", out,
                   ", not of the size asked for, or stride has another number of items") ||
      !ctx.require_disjoint(out, self, "self") || out.numel == 0) {
    return;
  }
  const uint32_t start =
      offset.is_none() ? 0 : static_cast<uint32_t>(ctx.integer(offset, 0, INT32_MAX));
  if (!ctx.ok()) return;
  uint64_t last = start;
  Walk<1> walk(out);
  for (uint32_t i = 0; i < stride.size(); ++i) {
    if (!ctx.require(stride[i] >= 0 && stride[i] <= INT32_MAX, "stride item ", i, " is ",
                     stride[i])) {
      return;
    }
    last += static_cast<uint64_t>(out.sizes[i] - 1) * static_cast<uint64_t>(stride[i]);
    walk.strides(0)[i] = static_cast<uint32_t>(stride[i]);
    if (!ctx.require(last < self.numel, "self is ", self, ", and the strides reach beyond it")) {
      return;
    }
  }
  if (ctx.require(last < self.numel, "self is ", self, ", and the offset is beyond it")) {
    copy_from(self, start, walk, out);
  }
}

// aten::constant_pad_nd.out(Tensor self, SymInt[] pad, Scalar value=0, *, Tensor(a!) out); not of
// int8, which is quantised, and the number is not.
void constant_pad_nd(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const IntList pad = ctx.int_list("pad");
  const Argument value = ctx.any("value");
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done() ||
      !ctx.require(pad.size() % 2 == 0 && pad.size() / 2 <= self.rank && out.rank == self.rank,
                   "pad has ", pad.size(), " items, self is ", self, ", out is ", out) ||
      !ctx.require_disjoint(out, self, "self")) {
    return;
  }
  Strides strides = {};
  strides_of(out, strides);
  Walk<1> walk(self);
  strides_of(out, walk.strides(0));
  uint32_t start = 0;
  for (int axis = 0; axis < self.rank; ++axis) {
    const uint32_t item = 2 * static_cast<uint32_t>(self.rank - 1 - axis);  // from the last one
    const int64_t before = item < pad.size() ? pad[item] : 0;
    const int64_t after = item < pad.size() ? pad[item + 1] : 0;
    if (!ctx.require(before >= 0 && before <= INT32_MAX && after >= 0 && after <= INT32_MAX &&
                         self.size(axis) + before + after == out.size(axis),
                     "self is ", self, ", out is ", out, ": dimension ", axis, " is padded by ",
                     before, " and ", after)) {
      return;
    }
    start += static_cast<uint32_t>(before) * strides[axis];
  }
  visit_dtype<float, int32_t, int64_t, Bool>(ctx, "self", self, [&](auto item) {
    using T = decltype(item);
    const T number = number_of<T>(ctx, value);
    if (!ctx.ok()) return;
    fill(out, number);
    for (uint32_t i = 0; i < self.numel; ++i, walk.next()) {
      out.as<T>()[start + walk.at(0)] = self.as<T>()[i];
    }
  });
}

// aten::embedding.out(Tensor weight, Tensor indices, SymInt padding_idx=-1,
//     bool scale_grad_by_freq=False, bool sparse=False, *, Tensor(a!) out)
void embedding(KernelContext& ctx) {
  const Tensor& weight = ctx.tensor("weight");
  const Tensor& indices = ctx.tensor("indices");
  ctx.any("padding_idx");  // as the next two: of training
  ctx.any("scale_grad_by_freq");
  ctx.any("sparse");
  const Tensor& out = ctx.out(weight.dtype);
  if (!ctx.done() || !check_indices(ctx, indices, out)) return;
  bool fits = weight.rank == 2 && out.rank == indices.rank + 1 && out.size(-1) == weight.size(1);
  for (int axis = 0; fits && axis < indices.rank; ++axis) {
    fits = out.size(axis) == indices.size(axis);
  }
  if (!ctx.require(fits, "weight is ", weight, ", indices are ", indices, ", out is ", out,
                   ": not a row of weight for each index") ||
      !ctx.require(is_row_major(weight) && is_row_major(indices) && is_row_major(out),
                   "weight, indices or out is not contiguous") ||
      !ctx.require_disjoint(out, weight, "weight")) {
    return;
  }
  const uint32_t row = weight.size(1) * item_size(weight.dtype);
  for (uint32_t i = 0; i < indices.numel; ++i) {
    const int64_t index = index_at(ctx, indices, i, weight.size(0), false);
    if (index < 0) return;
    std::memcpy(out.data + size_t{i} * row, weight.data + static_cast<size_t>(index) * row, row);
  }
}

// aten::index_select.out(Tensor self, int dim, Tensor index, *, Tensor(a!) out)
void index_select(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const Argument dim = ctx.any("dim");
  const Tensor& index = ctx.tensor("index");
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done() || !check_indices(ctx, index, out) ||
      !ctx.require(self.rank > 0, "self is ", self, ": no dimension to choose from")) {
    return;
  }
  const int axis = ctx.axis(dim, self.rank);
  if (!ctx.ok() ||
      !ctx.require(index.rank <= 1 && differs_in(self, out, axis, index.numel), "self is ", self,
                   ", index is ", index, ", out is ", out, ": not an item of dimension ", axis,
                   " for each index") ||
      !ctx.require_disjoint(out, self, "self")) {
    return;
  }
  Strides strides = {};
  strides_of(self, strides);
  Walk<2> walk(out);
  strides_of(self, walk.strides(0));
  walk.strides(0)[axis] = 0;
  walk.strides(1)[axis] = 1;
  const uint32_t size = item_size(out.dtype);
  for (uint32_t i = 0; i < out.numel; ++i, walk.next()) {
    const int64_t chosen = index_at(ctx, index, walk.at(1), self.size(axis), false);
    if (chosen < 0) return;
    copy_item(out.data, i, self.data, walk.at(0) + static_cast<uint32_t>(chosen) * strides[axis],
              size);
  }
}

// aten::index.Tensor_out(Tensor self, Tensor?[] indices, *, Tensor(a!) out): of neighbouring
// dimensions.
void index_tensor(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const OptionalTensorList indices = ctx.optional_tensor_list("indices");
  const Tensor& out = ctx.out(self.dtype);
  Indexed indexed;
  if (!ctx.done() || !find_indexed(ctx, indices, self, &indexed)) return;
  Walk<1> base(out);
  Walk<kMaxIndices> places(out);
  if (!ctx.require(place_indexed(self, indices, indexed, out, base, places), "self is ", self,
                   ", out is ", out, ": not what the indices choose") ||
      !ctx.require_disjoint(out, self, "self")) {
    return;
  }
  const auto index_of = [&](int i) -> const Tensor& {
    return *indices[static_cast<uint32_t>(indexed.first + i)];
  };
  for (int i = 0; i < indexed.count; ++i) {
    if (!check_indices(ctx, index_of(i), out)) return;
  }
  Strides strides = {};
  strides_of(self, strides);
  const uint32_t size = item_size(out.dtype);
  for (uint32_t item = 0; item < out.numel; ++item, base.next(), places.next()) {
    uint32_t from = base.at(0);
    for (int i = 0; i < indexed.count; ++i) {
      const int axis = indexed.first + i;
      const int64_t chosen = index_at(ctx, index_of(i), places.at(i), self.size(axis), true);
      if (chosen < 0) return;
      from += static_cast<uint32_t>(chosen) * strides[axis];
    }
    copy_item(out.data, item, self.data, from, size);
  }
}

}  // namespace hil::builtin
