// ATen's convolution in float32, plain and transposed, of one or two dimensions. ATen leaves the
// order of the sums open; here it is that of ExecuTorch's portable kernel, on every target.
#include "runtime/builtin/kernel.h"
#include "runtime/builtin/kernels/canonical_nan.h"
#include "runtime/builtin/kernels/image.h"
#include "runtime/builtin/kernels/walk.h"

namespace hil::builtin {
namespace {

// A tensor of [a, b, height, width]; a missing height is 1.
struct View {
  const Tensor* tensor = nullptr;
  int32_t sizes[4] = {1, 1, 1, 1};
  uint32_t strides[4] = {};

  float* at(int32_t a, int32_t b, int32_t y, int32_t x) const {
    return tensor->as<float>() + static_cast<uint32_t>(a) * strides[0] +
           static_cast<uint32_t>(b) * strides[1] + static_cast<uint32_t>(y) * strides[2] +
           static_cast<uint32_t>(x) * strides[3];
  }
};

struct Convolution {
  View input;   // [batch, channel, y, x]
  View weight;  // [out, in / groups, y, x]; transposed: [in, out / groups, y, x]
  View out;
  const float* bias;
  Window window;
  Pair output_padding;
  bool transposed;
  int32_t groups;
};

View view_of(KernelContext& ctx, const Tensor& tensor, int rank, const char* name) {
  View view;
  if (!ctx.require(tensor.rank == rank && (rank == 3 || rank == 4), name, " is ", tensor,
                   ": input, weight and out need 3 dimensions each, or 4")) {
    return view;
  }
  Strides own = {};
  strides_of(tensor, own);
  view.tensor = &tensor;
  for (int axis = 0; axis < rank; ++axis) {
    const int to = axis < 2 ? axis : axis + 4 - rank;
    view.sizes[to] = tensor.sizes[axis];
    view.strides[to] = own[axis];
  }
  return view;
}

// A list of one item for each dimension of the window, or one for all. The height that a
// one-dimensional convolution has not is `absent`.
Pair window_of(KernelContext& ctx, const char* name, int32_t low, int rank, int32_t absent) {
  const IntList list = ctx.int_list(name);
  if (!ctx.ok()) return {};
  const uint32_t dimensions = static_cast<uint32_t>(rank - 2);
  if (!ctx.require(list.size() == 1 || list.size() == dimensions, name, " has ", list.size(),
                   " items, ", dimensions, " or one needed")) {
    return {};
  }
  Pair pair = pair_of(ctx, list, name, low);
  if (dimensions == 1) pair.y = absent;
  return pair;
}

Convolution read(KernelContext& ctx) {
  const Tensor& input = ctx.tensor("input", DType::kFloat32);
  const Tensor& weight = ctx.tensor("weight", DType::kFloat32);
  const Tensor* bias = ctx.optional_tensor("bias", DType::kFloat32);
  const int rank = input.rank;
  const Pair stride = window_of(ctx, "stride", 1, rank, 1);
  const Pair padding = window_of(ctx, "padding", 0, rank, 0);
  const Pair dilation = window_of(ctx, "dilation", 1, rank, 1);
  const bool transposed = ctx.boolean("transposed");
  const Pair output_padding = window_of(ctx, "output_padding", 0, rank, 0);
  const int32_t groups = ctx.integer("groups", 1, INT32_MAX);
  const Tensor& out = ctx.out(DType::kFloat32);
  if (!ctx.done()) return {};
  Convolution conv = {view_of(ctx, input, rank, "input"),
                      view_of(ctx, weight, rank, "weight"),
                      view_of(ctx, out, rank, "out"),
                      bias == nullptr ? nullptr : bias->as<float>(),
                      {{}, stride, padding, dilation},
                      output_padding,
                      transposed,
                      groups};
  conv.window.kernel = {conv.weight.sizes[2], conv.weight.sizes[3]};
  ctx.require(bias == nullptr || bias->numel == static_cast<uint32_t>(conv.out.sizes[1]), "out is ",
              out, ", and bias has not one item for each of its channels");
  return conv;
}

bool check_axis(KernelContext& ctx, const Convolution& conv, const char* axis, int dimension,
                int32_t kernel, int32_t stride, int32_t padding, int32_t dilation,
                int32_t output_padding) {
  const int64_t input = conv.input.sizes[dimension];
  const int64_t reach = int64_t{dilation} * (kernel - 1) + 1;
  const int64_t room = input + 2 * int64_t{padding} - reach;
  // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): a stride that was read is not 0
  const int64_t plain = room < 0 ? -1 : room / stride + 1;
  const int64_t grown = (input - 1) * stride - 2 * int64_t{padding} + reach + output_padding;
  const int64_t expected = conv.transposed ? grown : plain;
  return ctx.require(input >= 1 && kernel >= 1, axis, ": input of ", input, ", kernel of ", kernel,
                     ": neither can be empty") &&
         ctx.require(input * stride + reach + 2 * int64_t{padding} <= INT32_MAX, axis,
                     ": input of ", input, " with stride ", stride, ", padding ", padding,
                     " and a kernel that reaches ", reach, " does not fit in int32") &&
         ctx.require(expected == conv.out.sizes[dimension], axis, ": out is ",
                     conv.out.sizes[dimension], ", an input of ", input, " gives ", expected);
}

bool check_channels(KernelContext& ctx, const Convolution& conv) {
  const int32_t in = conv.input.sizes[1];
  const int32_t out = conv.out.sizes[1];
  const int32_t groups = conv.groups;
  const int32_t first = conv.transposed ? in : out;
  const int32_t second = conv.transposed ? out : in;
  return ctx.require(in % groups == 0 && out % groups == 0, "the ", in, " input and ", out,
                     " output channels do not split into ", groups, " groups") &&
         ctx.require(conv.weight.sizes[0] == first && conv.weight.sizes[1] == second / groups,
                     "weight is ", *conv.weight.tensor, ": ", first, " and ", second / groups,
                     " channels needed");
}

bool check(KernelContext& ctx, const Convolution& conv) {
  const Window& window = conv.window;
  // NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): all tensors have been read
  return ctx.require(conv.input.sizes[0] == conv.out.sizes[0], "input is ", *conv.input.tensor,
                     ", out is ", *conv.out.tensor, ": the number of batches differs") &&
         check_channels(ctx, conv) &&
         check_axis(ctx, conv, "height", 2, window.kernel.y, window.stride.y, window.padding.y,
                    window.dilation.y, conv.output_padding.y) &&
         check_axis(ctx, conv, "width", 3, window.kernel.x, window.stride.x, window.padding.x,
                    window.dilation.x, conv.output_padding.x) &&
         ctx.require_disjoint(*conv.out.tensor, *conv.input.tensor, "input") &&
         ctx.require_disjoint(*conv.out.tensor, *conv.weight.tensor, "weight");
}

struct Place {
  int32_t batch;
  int32_t channel;
  int32_t y;
  int32_t x;
};

float plain_at(const Convolution& conv, const Place& place) {
  const Window& window = conv.window;
  const int32_t depth = conv.weight.sizes[1];
  const int32_t first = place.channel / (conv.out.sizes[1] / conv.groups) * depth;
  const int32_t top = place.y * window.stride.y - window.padding.y;
  const int32_t left = place.x * window.stride.x - window.padding.x;
  const Steps rows = steps_inside(top, window.kernel.y, window.dilation.y, conv.input.sizes[2]);
  const Steps columns = steps_inside(left, window.kernel.x, window.dilation.x, conv.input.sizes[3]);
  float sum = 0;
  for (int32_t i = 0; i < depth; ++i) {
    for (int32_t row = rows.begin; row < rows.end; ++row) {
      for (int32_t column = columns.begin; column < columns.end; ++column) {
        sum += *conv.input.at(place.batch, first + i, top + row * window.dilation.y,
                              left + column * window.dilation.x) *
               *conv.weight.at(place.channel, i, row, column);
      }
    }
  }
  return conv.bias == nullptr ? sum : sum + conv.bias[place.channel];
}

// The step of the kernel with which input place `from` reaches output place `to`; -1 if none does.
int32_t step_between(int32_t from, int32_t to, int32_t stride, int32_t padding, int32_t dilation,
                     int32_t kernel) {
  const int32_t distance = to + padding - from * stride;
  if (distance < 0 || distance % dilation != 0 || distance / dilation >= kernel) return -1;
  return distance / dilation;
}

float transposed_at(const Convolution& conv, const Place& place) {
  const Window& window = conv.window;
  const int32_t per_group = conv.weight.sizes[1];
  const int32_t depth = conv.input.sizes[1] / conv.groups;
  const int32_t first = place.channel / per_group * depth;
  float sum = conv.bias == nullptr ? 0.0f : conv.bias[place.channel];
  for (int32_t y = 0; y < conv.input.sizes[2]; ++y) {
    const int32_t row = step_between(y, place.y, window.stride.y, window.padding.y,
                                     window.dilation.y, window.kernel.y);
    for (int32_t x = 0; row >= 0 && x < conv.input.sizes[3]; ++x) {
      const int32_t column = step_between(x, place.x, window.stride.x, window.padding.x,
                                          window.dilation.x, window.kernel.x);
      for (int32_t i = first; column >= 0 && i < first + depth; ++i) {
        sum += *conv.input.at(place.batch, i, y, x) *
               *conv.weight.at(i, place.channel % per_group, row, column);
      }
    }
  }
  return sum;
}

void convolve(const Convolution& conv) {
  const View& out = conv.out;
  for (int32_t batch = 0; batch < out.sizes[0]; ++batch) {
    for (int32_t channel = 0; channel < out.sizes[1]; ++channel) {
      for (int32_t y = 0; y < out.sizes[2]; ++y) {
        for (int32_t x = 0; x < out.sizes[3]; ++x) {
          const Place place = {batch, channel, y, x};
          *out.at(batch, channel, y, x) =
              canonical_nan(conv.transposed ? transposed_at(conv, place) : plain_at(conv, place));
        }
      }
    }
  }
}

}  // namespace

// aten::convolution.out(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride,
//     SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups,
//     *, Tensor(a!) out)
void convolution(KernelContext& ctx) {
  const Convolution conv = read(ctx);
  if (ctx.ok() && check(ctx, conv)) convolve(conv);
}

}  // namespace hil::builtin
