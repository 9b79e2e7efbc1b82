// ATen's pools in float32: the last two dimensions are height and width, or the last three depth,
// height and width; those before them are batches and channels, in whatever dim order.
//
// Sums are added from the first item on, as ExecuTorch's portable pools do. Pools of volumes, and
// those that find the largest of a part, are missing in its library.
#include <limits>

#include "runtime/builtin/kernel.h"
#include "runtime/builtin/kernels/image.h"
#include "runtime/builtin/kernels/portable.h"

namespace hil::builtin {
namespace {

constexpr int kAxes = 3;
constexpr const char* kAxisNames[kAxes] = {"depth", "height", "width"};

// A number each for depth, height and width; images have a depth of 1.
struct Extent {
  int32_t of[kAxes] = {};
};

Extent extent_of(const Tensor& tensor, int axes) {
  Extent extent = {{1, 1, 1}};
  for (int axis = kAxes - axes; axis < kAxes; ++axis) {
    extent.of[axis] = tensor.sizes[tensor.rank - kAxes + axis];
  }
  return extent;
}

// An int[axes] argument: one item stands for all; where `empty` is given, no item stands for it.
Extent read_extent(KernelContext& ctx, const char* name, int axes, int32_t low,
                   const Extent* empty = nullptr) {
  const IntList list = ctx.int_list(name);
  Extent extent = {{low, low, low}};
  if (!ctx.ok()) return extent;
  if (empty != nullptr && list.size() == 0) return *empty;
  const bool fits = list.size() == 1 || list.size() == static_cast<uint32_t>(axes);
  if (!ctx.require(fits, name, " has ", list.size(), " items, ", axes, " needed") ||
      !check_steps(ctx, list, name, low)) {
    return extent;
  }
  for (int item = 0; item < axes; ++item) {
    const uint32_t from = list.size() == 1 ? 0 : static_cast<uint32_t>(item);
    extent.of[kAxes - axes + item] = static_cast<int32_t>(list[from]);
  }
  return extent;
}

// Is `out` of the shape of `self` but for the last `axes` dimensions, and has `self` items?
bool check_volumes(KernelContext& ctx, const Tensor& self, const Tensor& out, int axes) {
  bool fits =
      (self.rank == axes + 1 || self.rank == axes + 2) && out.rank == self.rank && self.numel != 0;
  for (int axis = 0; fits && axis < self.rank - axes; ++axis) {
    fits = self.size(axis) == out.size(axis);
  }
  return ctx.require(fits, "self is ", self, ", out is ", out, ": ", axes + 1, " or ", axes + 2,
                     " dimensions needed, of the same batches and channels") &&
         ctx.require_disjoint(out, self, "self");
}

// The items of one channel of one batch.
struct Volume {
  const float* first;
  uint32_t strides[kAxes];
};

// After check_volumes(), for each item of out: compute(the channel of self, the item's place in its
// channel, its place in memory, that of its item in `indices`).
template <typename Compute>
void compute_volumes(const Tensor& self, const Tensor& out, const Tensor& indices, int axes,
                     const Compute& compute) {
  const int inner = self.rank - axes;
  Strides strides = {};
  strides_of(self, strides);
  Volume volume = {};
  Walk<kAxes + 2> walk(out);
  for (int axis = 0; axis < inner; ++axis) walk.strides(kAxes)[axis] = strides[axis];
  for (int axis = inner; axis < self.rank; ++axis) {
    const int of = kAxes - self.rank + axis;
    volume.strides[of] = strides[axis];
    walk.strides(of)[axis] = 1;
  }
  strides_of(indices, walk.strides(kAxes + 1));
  for (uint32_t i = 0; i < out.numel; ++i, walk.next()) {
    Extent place;
    for (int of = 0; of < kAxes; ++of) place.of[of] = static_cast<int32_t>(walk.at(of));
    volume.first = self.as<float>() + walk.at(kAxes);
    compute(volume, place, i, walk.at(kAxes + 1));
  }
}

// The indices from `begin` to `end` - 1, every `step`-th one.
struct Range {
  int32_t begin;
  int32_t end;
  int32_t step;

  int32_t size() const { return end - begin; }
};

struct Ranges {
  Range of[kAxes];
};

// visit(value, index in a channel of `size`)
template <typename Visit>
void visit_items(const Volume& volume, const Ranges& ranges, const Extent& size,
                 const Visit& visit) {
  const Range& slices = ranges.of[0];
  const Range& rows = ranges.of[1];
  const Range& columns = ranges.of[2];
  for (int32_t z = slices.begin; z < slices.end; z += slices.step) {
    for (int32_t y = rows.begin; y < rows.end; y += rows.step) {
      const float* row = volume.first + static_cast<uint32_t>(z) * volume.strides[0] +
                         static_cast<uint32_t>(y) * volume.strides[1];
      const int32_t before = (z * size.of[1] + y) * size.of[2];
      for (int32_t x = columns.begin; x < columns.end; x += columns.step) {
        visit(row[static_cast<uint32_t>(x) * volume.strides[2]], before + x);
      }
    }
  }
}

float sum_of(const Volume& volume, const Ranges& ranges, const Extent& size) {
  float sum = 0;
  visit_items(volume, ranges, size, [&](float value, int32_t) { sum += value; });
  return sum;
}

struct Largest {
  float value = -std::numeric_limits<float>::infinity();
  int32_t index = -1;
};

// The first of equals counts, and the last NaN.
Largest largest_of(const Volume& volume, const Ranges& ranges, const Extent& size) {
  Largest largest;
  visit_items(volume, ranges, size, [&](float value, int32_t index) {
    if (largest.index >= 0 && !(value > largest.value) && !is_nan(value)) return;
    largest = {canonical_nan(value), index};
  });
  return largest;
}

// Windows that move

int32_t smaller(int32_t one, int32_t other) { return one < other ? one : other; }

struct Windows {
  Extent kernel;
  Extent stride;
  Extent padding;
};

// Reads kernel_size, stride and padding.
Windows read_windows(KernelContext& ctx, int axes) {
  Windows windows;
  windows.kernel = read_extent(ctx, "kernel_size", axes, 1);
  windows.stride = read_extent(ctx, "stride", axes, 1, &windows.kernel);
  windows.padding = read_extent(ctx, "padding", axes, 0);
  return windows;
}

bool check_windows(KernelContext& ctx, const Windows& windows, const Extent& dilation,
                   const Extent& size, const Extent& out, bool ceil_mode) {
  for (int axis = 0; axis < kAxes; ++axis) {
    const int32_t kernel = windows.kernel.of[axis];
    const int32_t padding = windows.padding.of[axis];
    if (!ctx.require(2 * padding <= kernel,
                     "padding is more than half of kernel_size: windows would be empty") ||
        !check_axis(ctx, kAxisNames[axis], size.of[axis], kernel, windows.stride.of[axis], padding,
                    dilation.of[axis], out.of[axis], ceil_mode)) {
      return false;
    }
  }
  return true;
}

// (kernel_size, stride, padding, bool ceil_mode, bool count_include_pad, int? divisor_override)
void avg_pool(KernelContext& ctx, int axes) {
  const Tensor& self = ctx.tensor("self", DType::kFloat32);
  const Windows windows = read_windows(ctx, axes);
  const bool ceil_mode = ctx.boolean("ceil_mode");
  const bool counts_padding = ctx.boolean("count_include_pad");
  const Argument divisor = ctx.any("divisor_override");
  const Tensor& out = ctx.out(DType::kFloat32);
  if (!ctx.done() || !check_volumes(ctx, self, out, axes)) return;
  const Extent size = extent_of(self, axes);
  const int32_t given = divisor.is_none() ? 0 : ctx.integer(divisor, 1, INT32_MAX);
  if (!ctx.ok() ||
      !check_windows(ctx, windows, {{1, 1, 1}}, size, extent_of(out, axes), ceil_mode)) {
    return;
  }
  const auto compute = [&](const Volume& volume, const Extent& place, uint32_t item, uint32_t) {
    Ranges inside;
    int64_t count = 1;
    int64_t with_padding = 1;
    for (int axis = 0; axis < kAxes; ++axis) {
      const int32_t padding = windows.padding.of[axis];
      const int32_t begin = place.of[axis] * windows.stride.of[axis] - padding;
      const int32_t end = smaller(begin + windows.kernel.of[axis], size.of[axis] + padding);
      inside.of[axis] = {begin < 0 ? 0 : begin, smaller(end, size.of[axis]), 1};
      count *= inside.of[axis].size();
      with_padding *= end - begin;
    }
    const int64_t by = given != 0 ? given : counts_padding ? with_padding : count;
    out.as<float>()[item] = canonical_nan(sum_of(volume, inside, size) / static_cast<float>(by));
  };
  compute_volumes(self, out, out, axes, compute);
}

// Between dilated steps a window may miss all of a small volume.
bool check_items(KernelContext& ctx, const Windows& windows, const Extent& dilation,
                 const Extent& size, const Extent& out) {
  for (int axis = 0; axis < kAxes; ++axis) {
    if (!ctx.require(
            each_has_a_pixel(out.of[axis], windows.kernel.of[axis], windows.stride.of[axis],
                             windows.padding.of[axis], dilation.of[axis], size.of[axis]),
            "a window lies in the padding alone, and has no largest item")) {
      return false;
    }
  }
  return true;
}

bool check_indices(KernelContext& ctx, const Tensor& self, const Tensor& out,
                   const Tensor& indices) {
  return ctx.require(same_shape(out, indices), "out is ", out, ", indices are ", indices,
                     ": the shapes differ") &&
         ctx.require_disjoint(indices, self, "self") && ctx.require_disjoint(indices, out, "out");
}

// After all checks; range_of(the place of an item of out, axis) gives that of its window.
template <typename RangeOf>
void find_largest(const Tensor& self, const Tensor& out, const Tensor& indices, int axes,
                  const RangeOf& range_of) {
  const Extent size = extent_of(self, axes);
  const auto compute = [&](const Volume& volume, const Extent& place, uint32_t item,
                           uint32_t index) {
    Ranges ranges;
    for (int axis = 0; axis < kAxes; ++axis) ranges.of[axis] = range_of(place.of[axis], axis);
    const Largest largest = largest_of(volume, ranges, size);
    out.as<float>()[item] = largest.value;
    indices.as<int64_t>()[index] = largest.index;
  };
  compute_volumes(self, out, indices, axes, compute);
}

// Parts: output n of `parts` is computed from the n-th part of the input

Range part_of(int32_t part, int32_t parts, int32_t size) {
  const int64_t begin = int64_t{part} * size / parts;
  const int64_t end = ((int64_t{part} + 1) * size + parts - 1) / parts;
  return {static_cast<int32_t>(begin), static_cast<int32_t>(end), 1};
}

bool is_size_of(KernelContext& ctx, const IntList& list, const Tensor& out, int axes) {
  bool same = list.size() == static_cast<uint32_t>(axes);
  for (int item = 0; same && item < axes; ++item) {
    same = list[static_cast<uint32_t>(item)] == out.sizes[out.rank - axes + item];
  }
  return ctx.require(same, "output_size is not the size of out, which is ", out);
}

// (output_size)
void adaptive_avg_pool(KernelContext& ctx, int axes) {
  const Tensor& self = ctx.tensor("self", DType::kFloat32);
  const IntList output_size = ctx.int_list("output_size");
  const Tensor& out = ctx.out(DType::kFloat32);
  if (!ctx.done() || !check_volumes(ctx, self, out, axes) ||
      !is_size_of(ctx, output_size, out, axes)) {
    return;
  }
  const Extent size = extent_of(self, axes);
  const Extent parts = extent_of(out, axes);
  const auto compute = [&](const Volume& volume, const Extent& place, uint32_t item, uint32_t) {
    Ranges ranges;
    int64_t count = 1;
    for (int axis = 0; axis < kAxes; ++axis) {
      ranges.of[axis] = part_of(place.of[axis], parts.of[axis], size.of[axis]);
      count *= ranges.of[axis].size();
    }
    out.as<float>()[item] = canonical_nan(sum_of(volume, ranges, size) / static_cast<float>(count));
  };
  compute_volumes(self, out, out, axes, compute);
}

// (output_size), and a second output
void adaptive_max_pool(KernelContext& ctx, int axes) {
  const Tensor& self = ctx.tensor("self", DType::kFloat32);
  const IntList output_size = ctx.int_list("output_size");
  const Tensor& out = ctx.out(DType::kFloat32);
  const Tensor& indices = ctx.out(DType::kInt64, "indices");
  if (!ctx.done() || !check_volumes(ctx, self, out, axes) ||
      !is_size_of(ctx, output_size, out, axes) || !check_indices(ctx, self, out, indices)) {
    return;
  }
  const Extent size = extent_of(self, axes);
  const Extent parts = extent_of(out, axes);
  find_largest(self, out, indices, axes, [&](int32_t place, int axis) {
    return part_of(place, parts.of[axis], size.of[axis]);
  });
}

}  // namespace

// aten::avg_pool2d.out(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0,
//     bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None, *,
//     Tensor(a!) out), and avg_pool3d
void avg_pool2d(KernelContext& ctx) { avg_pool(ctx, 2); }
void avg_pool3d(KernelContext& ctx) { avg_pool(ctx, 3); }

// aten::max_pool3d_with_indices.out(Tensor self, int[3] kernel_size, int[3] stride=[],
//     int[3] padding=0, int[3] dilation=1, bool ceil_mode=False, *, Tensor(a!) out,
//     Tensor(b!) indices)
void max_pool3d_with_indices(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self", DType::kFloat32);
  const Windows windows = read_windows(ctx, kAxes);
  const Extent dilation = read_extent(ctx, "dilation", kAxes, 1);
  const bool ceil_mode = ctx.boolean("ceil_mode");
  const Tensor& out = ctx.out(DType::kFloat32);
  const Tensor& indices = ctx.out(DType::kInt64, "indices");
  if (!ctx.done() || !check_volumes(ctx, self, out, kAxes) ||
      !check_indices(ctx, self, out, indices)) {
    return;
  }
  const Extent size = extent_of(self, kAxes);
  const Extent out_size = extent_of(out, kAxes);
  if (!check_windows(ctx, windows, dilation, size, out_size, ceil_mode) ||
      !check_items(ctx, windows, dilation, size, out_size)) {
    return;
  }
  find_largest(self, out, indices, kAxes, [&](int32_t place, int axis) {
    const int32_t first = place * windows.stride.of[axis] - windows.padding.of[axis];
    const int32_t step = dilation.of[axis];
    const Steps steps = steps_inside(first, windows.kernel.of[axis], step, size.of[axis]);
    return Range{first + steps.begin * step, first + steps.end * step, step};
  });
}

// aten::_adaptive_avg_pool2d.out(Tensor self, SymInt[2] output_size, *, Tensor(a!) out), and
// _adaptive_avg_pool3d
void adaptive_avg_pool2d(KernelContext& ctx) { adaptive_avg_pool(ctx, 2); }
void adaptive_avg_pool3d(KernelContext& ctx) { adaptive_avg_pool(ctx, 3); }

// aten::adaptive_max_pool2d.out(Tensor self, int[2] output_size, *, Tensor(a!) out,
//     Tensor(b!) indices), and adaptive_max_pool3d
void adaptive_max_pool2d(KernelContext& ctx) { adaptive_max_pool(ctx, 2); }
void adaptive_max_pool3d(KernelContext& ctx) { adaptive_max_pool(ctx, 3); }

}  // namespace hil::builtin
