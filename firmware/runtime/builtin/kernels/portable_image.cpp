// ATen's enlargements of images in float32: the last two dimensions are height and width,
// those before them batches and channels, in whatever dim order.
#include <cmath>

#include "runtime/builtin/kernel.h"
#include "runtime/builtin/kernels/image.h"
#include "runtime/builtin/kernels/portable.h"

namespace hil::builtin {
namespace {

// The items of one channel of one batch.
struct Plane {
  const float* first;
  uint32_t row;
  uint32_t column;

  float at(int32_t y, int32_t x) const {
    return first[static_cast<uint32_t>(y) * row + static_cast<uint32_t>(x) * column];
  }
};

// Is `out` of the shape of `self` but for height and width, with items in all?
bool check_planes(KernelContext& ctx, const Tensor& self, const Tensor& out) {
  bool fits = (self.rank == 3 || self.rank == 4) && out.rank == self.rank && self.numel != 0;
  for (int axis = 0; fits && axis < self.rank - 2; ++axis) fits = self.size(axis) == out.size(axis);
  return ctx.require(fits, "self is ", self, ", out is ", out,
                     ": 3 or 4 dimensions needed, of the same batches and channels") &&
         ctx.require_disjoint(out, self, "self");
}

// After check_planes(): compute(plane of self, y and x in out)
template <typename Compute>
void compute_planes(const Tensor& self, const Tensor& out, const Compute& compute) {
  const int last = self.rank - 1;
  Strides strides = {};
  strides_of(self, strides);
  Walk<3> walk(out);
  for (int axis = 0; axis < last - 1; ++axis) walk.strides(0)[axis] = strides[axis];
  walk.strides(1)[last - 1] = 1;
  walk.strides(2)[last] = 1;
  for (uint32_t i = 0; i < out.numel; ++i, walk.next()) {
    const Plane plane = {self.as<float>() + walk.at(0), strides[last - 1], strides[last]};
    out.as<float>()[i] = canonical_nan(
        compute(plane, static_cast<int32_t>(walk.at(1)), static_cast<int32_t>(walk.at(2))));
  }
}

Image image_of_last(const Tensor& tensor) {
  return {&tensor, 1, tensor.sizes[tensor.rank - 2], tensor.sizes[tensor.rank - 1], 1};
}

// Enlargements

// The distance in the input between neighbouring items of the output, in both dimensions.
struct Scales {
  float y = 0;
  float x = 0;
};

float scale_of(int32_t size, int32_t out, double factor, bool align_corners) {
  if (!align_corners) return static_cast<float>(1.0 / factor);
  return out > 1 ? static_cast<float>(static_cast<double>(size - 1) / (out - 1)) : 0.0f;
}

// The scales by `int[]? output_size, float[]? scale_factors`, one of which is None.
Scales scales_of(KernelContext& ctx, const Tensor& self, const Tensor& out, const Argument& size,
                 const Argument& factors, bool align_corners) {
  const Image from = image_of_last(self);
  const Image to = image_of_last(out);
  double y = static_cast<double>(to.height) / from.height;
  double x = static_cast<double>(to.width) / from.width;
  if (!factors.is_none()) {
    const DoubleList list = ctx.double_list(factors);
    if (!ctx.ok() || !ctx.require(list.size() == 2, "scale_factors has ", list.size(), " items")) {
      return {};
    }
    y = list[0];
    x = list[1];
  } else {
    const IntList list = ctx.int_list(size);
    ctx.require(list.size() == 2 && list[0] == to.height && list[1] == to.width,
                "output_size is not the size of out, which is ", out);
  }
  // The product is that of the size of out.
  const bool fits = y > 0 && x > 0 && std::floor(from.height * y) == to.height &&
                    std::floor(from.width * x) == to.width;
  ctx.require(fits || factors.is_none(), "self is ", self, ", out is ", out,
              ": scale_factors give another size");
  return {scale_of(from.height, to.height, y, align_corners),
          scale_of(from.width, to.width, x, align_corners)};
}

int32_t whole_part(float place, int32_t size) {
  const int32_t last = size - 1;
  return place < static_cast<float>(last) ? static_cast<int32_t>(place) : last;
}

// Two neighbours in the input, and how much of each there is.
struct Between {
  int32_t first;
  int32_t second;
  float of_first;
  float of_second;
};

Between between(int32_t place, float scale, int32_t size, int32_t out, bool align_corners) {
  if (out == size) return {place, place, 1.0f, 0.0f};
  const float at = static_cast<float>(place);
  const float middle = align_corners ? scale * at : scale * (at + 0.5f) - 0.5f;
  const float source = middle < 0 ? 0.0f : middle;
  const int32_t first = whole_part(source, size);
  const float beyond = source - static_cast<float>(first);
  const float of_second = beyond < 0 ? 0.0f : beyond > 1 ? 1.0f : beyond;
  return {first, first < size - 1 ? first + 1 : first, 1.0f - of_second, of_second};
}

}  // namespace

// aten::upsample_nearest2d.vec_out(Tensor input, SymInt[]? output_size, float[]? scale_factors, *,
//     Tensor(a!) out)
void upsample_nearest2d(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("input", DType::kFloat32);
  const Argument size = ctx.any("output_size");
  const Argument factors = ctx.any("scale_factors");
  const Tensor& out = ctx.out(DType::kFloat32);
  if (!ctx.done() || !check_planes(ctx, self, out)) return;
  const Scales scales = scales_of(ctx, self, out, size, factors, false);
  if (!ctx.ok()) return;
  const Image from = image_of_last(self);
  compute_planes(self, out, [&](const Plane& plane, int32_t y, int32_t x) {
    return plane.at(whole_part(static_cast<float>(y) * scales.y, from.height),
                    whole_part(static_cast<float>(x) * scales.x, from.width));
  });
}

// aten::upsample_bilinear2d.vec_out(Tensor input, SymInt[]? output_size, bool align_corners,
//     float[]? scale_factors, *, Tensor(a!) out)
void upsample_bilinear2d(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("input", DType::kFloat32);
  const Argument size = ctx.any("output_size");
  const bool align_corners = ctx.boolean("align_corners");
  const Argument factors = ctx.any("scale_factors");
  const Tensor& out = ctx.out(DType::kFloat32);
  if (!ctx.done() || !check_planes(ctx, self, out)) return;
  const Scales scales = scales_of(ctx, self, out, size, factors, align_corners);
  if (!ctx.ok()) return;
  const Image from = image_of_last(self);
  const Image to = image_of_last(out);
  compute_planes(self, out, [&](const Plane& plane, int32_t y, int32_t x) {
    const Between rows = between(y, scales.y, from.height, to.height, align_corners);
    const Between columns = between(x, scales.x, from.width, to.width, align_corners);
    const float top = plane.at(rows.first, columns.first) * columns.of_first +
                      plane.at(rows.first, columns.second) * columns.of_second;
    const float bottom = plane.at(rows.second, columns.first) * columns.of_first +
                         plane.at(rows.second, columns.second) * columns.of_second;
    return top * rows.of_first + bottom * rows.of_second;
  });
}

}  // namespace hil::builtin
