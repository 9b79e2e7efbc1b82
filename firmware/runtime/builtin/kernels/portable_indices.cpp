// ATen's copies of items that indices choose, and to places that they name: any dtype.
#include "runtime/builtin/kernel.h"
#include "runtime/builtin/kernels/broadcast.h"
#include "runtime/builtin/kernels/copy_items.h"
#include "runtime/builtin/kernels/portable.h"

namespace hil::builtin {
namespace {

// Of int32 or int64.
int64_t integer_at(const Tensor& tensor, uint32_t place) {
  return tensor.dtype == DType::kInt64 ? tensor.as<int64_t>()[place] : tensor.as<int32_t>()[place];
}

// The index of a row, checked; -1 after a failure.
int64_t index_at(KernelContext& ctx, const Tensor& indices, uint32_t place, uint32_t size,
                 bool from_end) {
  const int64_t given = integer_at(indices, place);
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

// The dimensions of index.Tensor and index_put that have indices: `count` of them from `first` on,
// whose indices broadcast to `rank` dimensions of out, which stand in their place.
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

// Tells whether `out` has the shape that self and indices give. Fills in where the items of `out`
// lie in self, without the indexed dimensions, and where they lie in each tensor of indices.
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
    bool is_longer = out.size(to) > 1;
    for (int i = 0; i < indexed.count; ++i) {
      const Tensor& index = *indices[static_cast<uint32_t>(indexed.first + i)];
      const int place = to - indexed.first - indexed.rank + index.rank;
      if (place >= 0 && index.size(place) != 1) is_longer = false;
    }
    if (is_longer) return false;
  }
  return true;
}

bool check_all_indices(KernelContext& ctx, const OptionalTensorList& indices,
                       const Indexed& indexed, const Tensor& out) {
  for (int i = 0; i < indexed.count; ++i) {
    if (!check_indices(ctx, *indices[static_cast<uint32_t>(indexed.first + i)], out)) return false;
  }
  return true;
}

// Moves `place`, in a tensor with these strides, to where the indices say. False after a failure.
bool add_indices(KernelContext& ctx, const OptionalTensorList& indices, const Indexed& indexed,
                 const Walk<kMaxIndices>& places, const Tensor& tensor, const Strides& strides,
                 uint32_t* place) {
  for (int i = 0; i < indexed.count; ++i) {
    const int axis = indexed.first + i;
    const int64_t chosen =
        index_at(ctx, *indices[static_cast<uint32_t>(axis)], places.at(i), tensor.size(axis), true);
    if (chosen < 0) return false;
    *place += static_cast<uint32_t>(chosen) * strides[axis];
  }
  return true;
}

// A view of self[indices] without a tensor for it.
class Chosen {
 public:
  // After find_indexed; a failure where there are too many items, or too many dimensions.
  Chosen(KernelContext& ctx, const Tensor& self, const OptionalTensorList& indices,
         const Indexed& indexed) {
    tensor_.sizes = sizes_;
    tensor_.dim_order = dim_order_;
    const int rank = self.rank - indexed.count + indexed.rank;
    if (!ctx.require(rank <= int{kMaxRank}, "self is ", self,
                     ": the indices give too many dimensions")) {
      return;
    }
    uint64_t numel = 1;
    tensor_.rank = static_cast<uint8_t>(rank);
    tensor_.dtype = self.dtype;
    for (int axis = 0; axis < tensor_.rank; ++axis) {
      sizes_[axis] = size_of(self, indices, indexed, axis);
      dim_order_[axis] = static_cast<uint8_t>(axis);
      numel *= static_cast<uint32_t>(sizes_[axis]);
      if (!ctx.require(numel <= INT32_MAX, "the indices choose too many items")) return;
    }
    tensor_.numel = static_cast<uint32_t>(numel);
  }
  Chosen(const Chosen&) = delete;
  Chosen& operator=(const Chosen&) = delete;

  const Tensor& tensor() const { return tensor_; }

 private:
  static int32_t size_of(const Tensor& self, const OptionalTensorList& indices,
                         const Indexed& indexed, int axis) {
    const int place = axis - indexed.first;
    if (place < 0) return self.sizes[axis];
    if (place >= indexed.rank) return self.sizes[axis - indexed.rank + indexed.count];
    int32_t size = 1;
    for (int i = 0; i < indexed.count; ++i) {
      const Tensor& index = *indices[static_cast<uint32_t>(indexed.first + i)];
      const int own = place - indexed.rank + index.rank;
      if (own >= 0 && index.sizes[own] != 1) size = index.sizes[own];
    }
    return size;
  }

  int32_t sizes_[kMaxRank] = {};
  uint8_t dim_order_[kMaxRank] = {};
  Tensor tensor_;
};

// The shape of gather's and scatter's index: no dimension longer than that of `tensor`, but for
// `axis` where that is a dimension.
bool reaches_no_further(const Tensor& index, const Tensor& tensor, int axis) {
  bool fits = index.rank == tensor.rank;
  for (int i = 0; fits && i < index.rank; ++i) {
    fits = i == axis || index.size(i) <= tensor.size(i);
  }
  return fits;
}

constexpr int kNoAxis = -1;

// Executes an operator with (Tensor self, int dim, Tensor index, .., Tensor(a!) out), and asks
// done(). Each item of out is the item of self at the same place, except that index gives the place
// in dimension dim. fits(dimension, places) checks the shapes, and fills in the place in index for
// each item of out.
template <typename Fits>
void choose_along(KernelContext& ctx, const Tensor& self, const Argument& dim, const Tensor& index,
                  const Tensor& out, const Fits& fits) {
  if (!ctx.done() || !check_indices(ctx, index, out) ||
      !ctx.require(self.rank > 0, "self is ", self, ": no dimension to choose from")) {
    return;
  }
  const int axis = ctx.axis(dim, self.rank);
  Walk<2> walk(out);
  if (!ctx.ok() ||
      !ctx.require(fits(axis, walk.strides(1)), "self is ", self, ", index is ", index, ", out is ",
                   out, ": not an item of dimension ", axis, " for each index") ||
      !ctx.require_disjoint(out, self, "self")) {
    return;
  }
  strides_of(self, walk.strides(0));
  const uint32_t stride = walk.strides(0)[axis];
  walk.strides(0)[axis] = 0;
  const uint32_t size = item_size(out.dtype);
  for (uint32_t i = 0; i < out.numel; ++i, walk.next()) {
    const int64_t chosen = index_at(ctx, index, walk.at(1), self.size(axis), false);
    if (chosen < 0) return;
    copy_item(out.data, i, self.data, walk.at(0) + static_cast<uint32_t>(chosen) * stride, size);
  }
}

// Integers wrap, as ATen's do.
template <typename T>
T sum_of(T one, T two) {
  if constexpr (std::is_floating_point_v<T>) {
    return canonical_nan(one + two);
  } else {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(one) + static_cast<Unsigned>(two));
  }
}

// out is self, but at the places that index names in dimension `dim`: there items of src, which lie
// where `walk`, along index, says.
void scatter_items(KernelContext& ctx, const Tensor& self, const Argument& dim, const Tensor& index,
                   const Tensor& src, Walk<2>& walk, const Tensor& out) {
  if (!ctx.require(self.rank > 0, "self is ", self, ": no dimension to scatter along")) return;
  const int axis = ctx.axis(dim, self.rank);
  if (!ctx.ok() ||
      !ctx.require(reaches_no_further(index, self, axis), "self is ", self, ", index is ", index,
                   ": longer in another dimension than ", axis)) {
    return;
  }
  copy_reordered(self, out);
  Strides strides = {};
  strides_of(out, strides);
  for (int i = 0; i < index.rank; ++i) walk.strides(1)[i] = i == axis ? 0 : strides[i];
  const uint32_t size = item_size(out.dtype);
  for (uint32_t i = 0; i < index.numel; ++i, walk.next()) {
    const int64_t chosen = index_at(ctx, index, i, self.size(axis), false);
    if (chosen < 0) return;
    copy_item(out.data, walk.at(1) + static_cast<uint32_t>(chosen) * strides[axis], src.data,
              walk.at(0), size);
  }
}

// Bags of rows

struct BagArguments {
  const Tensor& weight;
  const Tensor& indices;
  const Tensor& offsets;
  int32_t mode;  // 0: sum, 1: mean, 2: the largest
  const Tensor* factors;
  bool has_last_offset;
  int64_t padding;  // the row that counts for nothing

  uint32_t bags() const { return offsets.numel - (has_last_offset ? 1 : 0); }
};

// What a backward pass needs, besides `rows`.
struct BagOutputs {
  const Tensor& rows;
  const Tensor& bag_of_index;
  const Tensor& sizes;
  const Tensor& largest;
};

bool check_bags(KernelContext& ctx, const BagArguments& bags, const BagOutputs& out) {
  const Tensor& indices = bags.indices;
  const uint32_t count = bags.offsets.numel == 0 ? 0 : bags.bags();
  const uint32_t items = bags.mode == 2 ? out.rows.numel : count;
  return check_indices(ctx, indices, out.rows) && check_indices(ctx, bags.offsets, out.rows) &&
         ctx.require(bags.weight.rank == 2 && indices.rank == 1 && bags.offsets.rank == 1 &&
                         out.rows.rank == 2 && bags.offsets.numel != 0 &&
                         out.rows.size(0) == count && out.rows.size(1) == bags.weight.size(1),
                     "weight is ", bags.weight, ", indices are ", indices, ", offsets are ",
                     bags.offsets, ", out is ", out.rows, ": not a row for each bag") &&
         ctx.require(
             bags.factors == nullptr || (bags.mode == 0 && bags.factors->numel == indices.numel),
             "per_sample_weights: one for each index needed, of a sum") &&
         ctx.require((out.bag_of_index.numel == 0 || out.bag_of_index.numel == indices.numel) &&
                         (out.sizes.numel == count || out.sizes.numel == bags.offsets.numel) &&
                         out.largest.numel == items,
                     "out1, out2 or out3 has another number of items than the bags") &&
         ctx.require(
             is_row_major(bags.weight) && is_row_major(out.rows) && is_row_major(out.largest),
             "weight or out is not contiguous") &&
         ctx.require_disjoint(out.rows, bags.weight, "weight");
}

template <typename T>
class BagReduction {
 public:
  BagReduction(KernelContext& ctx, const BagArguments& bags, const BagOutputs& out)
      : ctx_(ctx), bags_(bags), out_(out), columns_(bags.weight.size(1)) {}

  void compute() {
    // Of fewer, torch sums those before the last offset, and takes means and maxima of others.
    const uint32_t all = bags_.indices.numel;
    const int64_t last = bags_.has_last_offset ? integer_at(bags_.offsets, bags_.bags()) : all;
    if (!ctx_.require(last == all, "the last of the offsets is ", last, ", and there are ", all,
                      " indices")) {
      return;
    }
    fill<float>(out_.rows, 0);
    fill<T>(out_.sizes, 0);  // _forward_only has one for the last offset, too
    fill<T>(out_.largest, 0);
    for (uint32_t bag = 0; bag < bags_.bags() && ctx_.ok(); ++bag) reduce(bag);
  }

 private:
  void reduce(uint32_t bag) {
    const uint32_t all = bags_.indices.numel;
    const int64_t begin = integer_at(bags_.offsets, bag);
    const int64_t end = bag + 1 == bags_.offsets.numel ? all : integer_at(bags_.offsets, bag + 1);
    if (!ctx_.require(begin >= 0 && begin <= end && end <= all && (bag != 0 || begin == 0), "bag ",
                      bag, " is from ", begin, " to ", end, " of ", all, " indices")) {
      return;
    }
    uint32_t count = 0;
    for (auto i = static_cast<uint32_t>(begin); i < end; ++i) {
      if (out_.bag_of_index.numel != 0) out_.bag_of_index.as<T>()[i] = static_cast<T>(bag);
      const int64_t index = index_at(ctx_, bags_.indices, i, bags_.weight.size(0), false);
      if (index < 0) return;
      if (index != bags_.padding) take(bag, i, static_cast<uint32_t>(index), count++ == 0);
    }
    out_.sizes.as<T>()[bag] = static_cast<T>(count);
    float* row = out_.rows.as<float>() + bag * columns_;
    for (uint32_t i = 0; i < columns_; ++i) {
      row[i] = canonical_nan(bags_.mode == 1 && count != 0 ? row[i] / static_cast<float>(count)
                                                           : row[i]);
    }
  }

  void take(uint32_t bag, uint32_t place, uint32_t index, bool is_first) {
    const float factor = bags_.factors == nullptr ? 1.0f : bags_.factors->as<float>()[place];
    const float* from = bags_.weight.as<float>() + index * columns_;
    const uint32_t first = bag * columns_;
    float* row = out_.rows.as<float>() + first;
    for (uint32_t i = 0; i < columns_; ++i) {
      if (bags_.mode != 2) {
        row[i] += factor * from[i];
      } else if (is_first || from[i] > row[i]) {
        row[i] = from[i];
        out_.largest.as<T>()[first + i] = static_cast<T>(index);
      }
    }
  }

  KernelContext& ctx_;
  const BagArguments& bags_;
  const BagOutputs& out_;
  uint32_t columns_;
};

}  // namespace

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

// aten::_embedding_bag.out(Tensor weight, Tensor indices, Tensor offsets,
//     bool scale_grad_by_freq=False, int mode=0, bool sparse=False,
//     Tensor? per_sample_weights=None, bool include_last_offset=False, int padding_idx=-1, *,
//     Tensor(a!) out0, Tensor(b!) out1, Tensor(c!) out2, Tensor(d!) out3), and
// _embedding_bag_forward_only
void embedding_bag(KernelContext& ctx) {
  const Tensor& weight = ctx.tensor("weight", DType::kFloat32);
  const Tensor& indices = ctx.tensor("indices");
  const Tensor& offsets = ctx.tensor("offsets");
  ctx.any("scale_grad_by_freq");  // as `sparse`: of training
  const int32_t mode = ctx.integer("mode", 0, 2);
  ctx.any("sparse");
  const Tensor* factors = ctx.optional_tensor("per_sample_weights", DType::kFloat32);
  const bool has_last_offset = ctx.boolean("include_last_offset");
  const int64_t padding = ctx.integer("padding_idx");
  const Tensor& rows = ctx.out(DType::kFloat32, "out0");
  const Tensor& bag_of_index = ctx.out(offsets.dtype, "out1");
  const Tensor& sizes = ctx.out(offsets.dtype, "out2");
  const Tensor& largest = ctx.out(offsets.dtype, "out3");
  if (!ctx.done()) return;
  const BagArguments bags = {weight, indices, offsets, mode, factors, has_last_offset, padding};
  const BagOutputs out = {rows, bag_of_index, sizes, largest};
  if (!check_bags(ctx, bags, out)) return;
  if (offsets.dtype == DType::kInt64) {
    BagReduction<int64_t>(ctx, bags, out).compute();
  } else {
    BagReduction<int32_t>(ctx, bags, out).compute();
  }
}

// aten::index_select.out(Tensor self, int dim, Tensor index, *, Tensor(a!) out)
void index_select(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const Argument dim = ctx.any("dim");
  const Tensor& index = ctx.tensor("index");
  const Tensor& out = ctx.out(self.dtype);
  choose_along(ctx, self, dim, index, out, [&](int axis, Strides& places) {
    places[axis] = 1;
    return index.rank <= 1 && differs_in(self, out, axis, index.numel);
  });
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
  if (!check_all_indices(ctx, indices, indexed, out)) return;
  Strides strides = {};
  strides_of(self, strides);
  const uint32_t size = item_size(out.dtype);
  for (uint32_t item = 0; item < out.numel; ++item, base.next(), places.next()) {
    uint32_t from = base.at(0);
    if (!add_indices(ctx, indices, indexed, places, self, strides, &from)) return;
    copy_item(out.data, item, self.data, from, size);
  }
}

// aten::index_put.out(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False, *,
//     Tensor(a!) out): of neighbouring dimensions. Of int8, which is quantised, nothing is summed.
void index_put(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const OptionalTensorList indices = ctx.optional_tensor_list("indices");
  const Tensor& values = ctx.tensor("values", self.dtype);
  const bool accumulate = ctx.boolean("accumulate");
  const Tensor& out = ctx.out(self.dtype);
  Indexed indexed;
  if (!ctx.done() || !check_alike(ctx, self, out) || !find_indexed(ctx, indices, self, &indexed)) {
    return;
  }
  const Chosen chosen(ctx, self, indices, indexed);
  if (!ctx.ok()) return;
  Walk<1> base(chosen.tensor());
  Walk<kMaxIndices> places(chosen.tensor());
  Walk<1> from(chosen.tensor());
  if (!ctx.require(place_indexed(out, indices, indexed, chosen.tensor(), base, places), "self is ",
                   self, ": the indices do not broadcast to each other") ||
      !ctx.require(broadcast_strides(values, chosen.tensor(), from.strides(0)), "values are ",
                   values, ", and the indices choose ", chosen.tensor()) ||
      !ctx.require_disjoint(out, values, "values") ||
      !check_all_indices(ctx, indices, indexed, out)) {
    return;
  }
  copy_reordered(self, out);
  Strides strides = {};
  strides_of(out, strides);
  const auto for_each_place = [&](const auto& visit) {
    for (uint32_t i = 0; i < chosen.tensor().numel; ++i, base.next(), places.next(), from.next()) {
      uint32_t to = base.at(0);
      if (!add_indices(ctx, indices, indexed, places, out, strides, &to)) return;
      visit(to, from.at(0));
    }
  };
  const uint32_t size = item_size(out.dtype);
  if (!accumulate) {
    for_each_place(
        [&](uint32_t to, uint32_t at) { copy_item(out.data, to, values.data, at, size); });
    return;
  }
  visit_dtype<float, int32_t, int64_t>(ctx, "self, which is summed,", self, [&](auto item) {
    using T = decltype(item);
    for_each_place([&](uint32_t to, uint32_t at) {
      out.as<T>()[to] = sum_of(out.as<T>()[to], values.as<T>()[at]);
    });
  });
}

// aten::gather.out(Tensor self, int dim, Tensor index, *, bool sparse_grad=False, Tensor(a!) out)
void gather(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const Argument dim = ctx.any("dim");
  const Tensor& index = ctx.tensor("index");
  ctx.any("sparse_grad");  // of training
  const Tensor& out = ctx.out(self.dtype);
  choose_along(ctx, self, dim, index, out, [&](int axis, Strides& places) {
    strides_of(index, places);
    return reaches_no_further(index, self, axis) && same_shape(index, out);
  });
}

// aten::scatter.src_out(Tensor self, int dim, Tensor index, Tensor src, *, Tensor(a!) out)
void scatter_src(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const Argument dim = ctx.any("dim");
  const Tensor& index = ctx.tensor("index");
  const Tensor& src = ctx.tensor("src", self.dtype);
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done() || !check_alike(ctx, self, out) || !check_indices(ctx, index, out) ||
      !ctx.require(reaches_no_further(index, src, kNoAxis), "index is ", index, ", src is ", src,
                   ": not an item for each index") ||
      !ctx.require_disjoint(out, src, "src")) {
    return;
  }
  Walk<2> walk(index);
  strides_of(src, walk.strides(0));
  scatter_items(ctx, self, dim, index, src, walk, out);
}

// aten::scatter.value_out(Tensor self, int dim, Tensor index, Scalar value, *, Tensor(a!) out); not
// of int8, which is quantised, and the number is not.
void scatter_value(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self");
  const Argument dim = ctx.any("dim");
  const Tensor& index = ctx.tensor("index");
  const Argument value = ctx.any("value");
  const Tensor& out = ctx.out(self.dtype);
  if (!ctx.done() || !check_alike(ctx, self, out) || !check_indices(ctx, index, out)) return;
  visit_dtype<float, int32_t, int64_t, Bool>(ctx, "self", self, [&](auto item) {
    using T = decltype(item);
    const NumberTensor<T> number(number_of<T>(ctx, value));
    Walk<2> walk(index);
    if (ctx.ok()) scatter_items(ctx, self, dim, index, number.tensor(), walk, out);
  });
}

}  // namespace hil::builtin
