// 2-D pooling: the arithmetic of CMSIS-NN's arm_avgpool_s8 and arm_max_pool_s8, and ATen's pooling
// that tells where it found the largest.
//
// The scratch tensor is CMSIS-NN's; this code needs none.
#include "runtime/builtin/kernel.h"
#include "runtime/builtin/kernels/image.h"
#include "runtime/builtin/kernels/requantize.h"
#include "runtime/builtin/kernels/walk.h"

namespace hil::builtin {
namespace {

struct Pooling {
  Image input;
  Image out;
  Window window;
  bool ceil_mode;
};

// The arguments after the input.
Window read_window(KernelContext& ctx) {
  return {pair_of(ctx, "kernel_size", 1),
          pair_of(ctx, "stride", 1),
          pair_of(ctx, "padding", 0),
          {1, 1}};
}

// Reads the last argument.
Pooling pooling_of(KernelContext& ctx, Layout layout, const Tensor& input, const Window& window,
                   bool ceil_mode) {
  const Tensor& out = ctx.out(DType::kInt8);
  if (!ctx.done()) return {};
  return {image_of(ctx, input, "input", layout), image_of(ctx, out, "out", layout), window,
          ceil_mode};
}

// Padding of at most half a kernel, so that every window has pixels of the image in it.
bool check(KernelContext& ctx, const Pooling& pooling) {
  const Window& window = pooling.window;
  // NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): all tensors have been read
  return ctx.require(pooling.input.batches == pooling.out.batches &&
                         pooling.input.channels == pooling.out.channels,
                     "input is ", *pooling.input.tensor, ", out is ", *pooling.out.tensor,
                     ": batches or channels differ") &&
         ctx.require(
             2 * window.padding.y <= window.kernel.y && 2 * window.padding.x <= window.kernel.x,
             "padding is more than half of kernel_size: windows would be empty") &&
         ctx.require(window.dilation.y == 1 && window.dilation.x == 1,
                     "dilation is not 1: CMSIS-NN has no such pooling") &&
         check_window(ctx, window, pooling.input, pooling.out, pooling.ceil_mode) &&
         ctx.require_disjoint(*pooling.out.tensor, *pooling.input.tensor, "input");
}

// For each output pixel and channel, in the order of memory: pool(the window's pixels of a
// channel, as a function that visits them) gives the result.
template <typename Pool>
void pool_all(const Pooling& pooling, const Pool& pool) {
  const Image& input = pooling.input;
  for_each_pixel(
      pooling.out, pooling.window, [&](int32_t batch, int32_t top, int32_t left, int8_t* pixel) {
        const Steps rows = steps_inside(top, pooling.window.kernel.y, 1, input.height);
        const Steps columns = steps_inside(left, pooling.window.kernel.x, 1, input.width);
        const int32_t count = (rows.end - rows.begin) * (columns.end - columns.begin);
        for (int32_t channel = 0; channel < input.channels; ++channel) {
          const auto visit_all = [&](const auto& visit) {
            for (int32_t row = rows.begin; row < rows.end; ++row) {
              const int8_t* from = input.pixel(batch, top + row, left + columns.begin) + channel;
              for (int32_t i = columns.begin; i < columns.end; ++i, from += input.channels) {
                visit(*from);
              }
            }
          };
          pixel[channel] = pool(visit_all, count);
        }
      });
}

// Ties away from zero, of the integers themselves: the zero point stays where it is.
int32_t rounded_mean(int32_t sum, int32_t count) {
  const int32_t half = count / 2;
  return (sum > 0 ? sum + half : sum - half) / count;
}

void average(const Pooling& pooling) {
  pool_all(pooling, [](const auto& visit_all, int32_t count) {
    int32_t sum = 0;
    visit_all([&](int8_t value) { sum += value; });
    return static_cast<int8_t>(clamp(rounded_mean(sum, count), INT8_MIN, INT8_MAX));
  });
}

void quantized_avg_pool2d_in(KernelContext& ctx, Layout layout) {
  const Tensor& input = ctx.tensor("input", DType::kInt8);
  const Window window = read_window(ctx);
  const bool ceil_mode = ctx.boolean_if_given("ceil_mode");  // executorch 1.4.1 has none
  // Input and output have the same quantisation, so CMSIS-NN ignores these arguments.
  ctx.integer("zero_point");
  ctx.integer("multiplier");
  ctx.integer("shift");
  ctx.tensor("scratch");
  const Pooling pooling = pooling_of(ctx, layout, input, window, ceil_mode);
  if (!ctx.ok() || !check(ctx, pooling)) return;
  constexpr uint32_t kMaxItems = 1u << 23;  // so that no sum of int8 leaves int32
  if (!ctx.require(pooling.input.tensor->numel <= kMaxItems, "input is ", *pooling.input.tensor,
                   ", too large")) {
    return;
  }
  average(pooling);
}

void quantized_max_pool2d_in(KernelContext& ctx, Layout layout) {
  const Tensor& input = ctx.tensor("input", DType::kInt8);
  Window window = read_window(ctx);
  window.dilation = pair_of(ctx, "dilation", 1);
  const bool ceil_mode = ctx.boolean("ceil_mode");
  const int32_t input_zero_point = ctx.integer("input_zero_point", INT8_MIN, INT8_MAX);
  const int32_t output_zero_point = ctx.integer("output_zero_point", INT8_MIN, INT8_MAX);
  const int32_t activation_min = ctx.integer("activation_min", INT8_MIN, INT8_MAX);
  const int32_t activation_max = ctx.integer("activation_max", INT8_MIN, INT8_MAX);
  const Pooling pooling = pooling_of(ctx, layout, input, window, ceil_mode);
  if (!ctx.ok() || !check(ctx, pooling) ||
      !ctx.require(!ceil_mode, "ceil_mode is True, which ExecuTorch's operator refuses") ||
      !ctx.require(input_zero_point == output_zero_point, "input_zero_point is ", input_zero_point,
                   ", output_zero_point ", output_zero_point, ": they must be the same") ||
      !ctx.require(activation_min <= activation_max, "activation_min ", activation_min,
                   " is above activation_max ", activation_max)) {
    return;
  }
  pool_all(pooling, [&](const auto& visit_all, int32_t) {
    int32_t largest = INT8_MIN;
    visit_all([&](int8_t value) { largest = value > largest ? value : largest; });
    return static_cast<int8_t>(clamp(largest, activation_min, activation_max));
  });
}

// With indices: any dim order, int8 and float32

struct IndexedPooling {
  const Tensor& input;
  const Tensor& out;
  const Tensor& indices;
  Window window;
  bool ceil_mode;

  // Channels do not matter to a window.
  static Image image_of(const Tensor& tensor) {
    return {&tensor, tensor.sizes[0], tensor.sizes[2], tensor.sizes[3], tensor.sizes[1]};
  }
};

bool check_pixels(KernelContext& ctx, const Window& window, const Image& input, const Image& out) {
  return ctx.require(each_has_a_pixel(out.height, window.kernel.y, window.stride.y,
                                      window.padding.y, window.dilation.y, input.height) &&
                         each_has_a_pixel(out.width, window.kernel.x, window.stride.x,
                                          window.padding.x, window.dilation.x, input.width),
                     "a window lies in the padding alone, and has no largest pixel");
}

bool check(KernelContext& ctx, const IndexedPooling& pooling) {
  const Window& window = pooling.window;
  const Tensor& input = pooling.input;
  const Tensor& out = pooling.out;
  return ctx.require(input.rank == 4 && out.rank == 4 && input.size(0) == out.size(0) &&
                         input.size(1) == out.size(1),
                     "input is ", input, ", out is ", out,
                     ": 4 dimensions needed, of the same batches and channels") &&
         ctx.require(same_shape(out, pooling.indices), "out is ", out, ", indices are ",
                     pooling.indices, ": the shapes differ") &&
         ctx.require(
             2 * window.padding.y <= window.kernel.y && 2 * window.padding.x <= window.kernel.x,
             "padding is more than half of kernel_size: windows would be empty") &&
         check_window(ctx, window, IndexedPooling::image_of(input), IndexedPooling::image_of(out),
                      pooling.ceil_mode) &&
         check_pixels(ctx, window, IndexedPooling::image_of(input),
                      IndexedPooling::image_of(out)) &&
         ctx.require_disjoint(out, input, "input") &&
         ctx.require_disjoint(pooling.indices, input, "input") &&
         ctx.require_disjoint(out, pooling.indices, "indices");
}

// `plane` is a channel's first pixel. The first of equals counts, and the last NaN.
template <typename T>
void pool_window(const IndexedPooling& pooling, const T* plane, const Strides& strides, int32_t top,
                 int32_t left, T* largest, int64_t* index) {
  const Window& window = pooling.window;
  const int32_t width = pooling.input.sizes[3];
  const Steps rows = steps_inside(top, window.kernel.y, window.dilation.y, pooling.input.sizes[2]);
  const Steps columns = steps_inside(left, window.kernel.x, window.dilation.x, width);
  bool found = false;
  for (int32_t row = rows.begin; row < rows.end; ++row) {
    for (int32_t column = columns.begin; column < columns.end; ++column) {
      const int32_t y = top + row * window.dilation.y;
      const int32_t x = left + column * window.dilation.x;
      const T value =
          plane[static_cast<uint32_t>(y) * strides[2] + static_cast<uint32_t>(x) * strides[3]];
      if (found && value <= *largest) continue;
      // NaN is larger than anything. NOLINTNEXTLINE(misc-redundant-expression)
      if (found && *largest != *largest && value == value) continue;
      found = true;
      *largest = value;
      *index = int64_t{y} * width + x;
    }
  }
}

template <typename T>
void pool_indexed(const IndexedPooling& pooling) {
  const Tensor& out = pooling.out;
  const Window& window = pooling.window;
  Strides strides = {};
  strides_of(pooling.input, strides);
  Walk<4> walk(out);  // the channel's plane, the place in it, and that of the index
  walk.strides(0)[0] = strides[0];
  walk.strides(0)[1] = strides[1];
  walk.strides(1)[2] = 1;
  walk.strides(2)[3] = 1;
  strides_of(pooling.indices, walk.strides(3));
  for (uint32_t i = 0; i < out.numel; ++i, walk.next()) {
    const int32_t top = static_cast<int32_t>(walk.at(1)) * window.stride.y - window.padding.y;
    const int32_t left = static_cast<int32_t>(walk.at(2)) * window.stride.x - window.padding.x;
    pool_window(pooling, pooling.input.as<T>() + walk.at(0), strides, top, left, out.as<T>() + i,
                pooling.indices.as<int64_t>() + walk.at(3));
  }
}

}  // namespace

// aten::max_pool2d_with_indices.out(Tensor self, int[2] kernel_size, int[2] stride=[],
//     int[2] padding=0, int[2] dilation=1, bool ceil_mode=False, *, Tensor(a!) out,
//     Tensor(b!) indices)
void max_pool2d_with_indices(KernelContext& ctx) {
  const Tensor& input = ctx.tensor("self");
  const Pair kernel = pair_of(ctx, "kernel_size", 1);
  const Pair stride = pair_of(ctx, "stride", 1, &kernel);
  const Pair padding = pair_of(ctx, "padding", 0);
  const Pair dilation = pair_of(ctx, "dilation", 1);
  const bool ceil_mode = ctx.boolean("ceil_mode");
  const Tensor& out = ctx.out(input.dtype);
  const Tensor& indices = ctx.out(DType::kInt64, "indices");
  const IndexedPooling pooling = {
      input, out, indices, {kernel, stride, padding, dilation}, ceil_mode};
  if (!ctx.done() || !check(ctx, pooling)) return;
  if (input.dtype == DType::kFloat32) {
    pool_indexed<float>(pooling);
  } else if (ctx.require(input.dtype == DType::kInt8, "self is ", input,
                         ", the operator takes int8 and float32")) {
    pool_indexed<int8_t>(pooling);
  }
}

// cortex_m::quantized_avg_pool2d.out(Tensor input, int[] kernel_size, int[] stride, int[] padding,
//     bool ceil_mode, int zero_point, int multiplier, int shift, Tensor scratch, *,
//     Tensor(a!) out); of executorch 1.4.1 without ceil_mode
void quantized_avg_pool2d(KernelContext& ctx) {
  quantized_avg_pool2d_in(ctx, Layout::kChannelsLast);
}
void quantized_avg_pool2d_nhwc(KernelContext& ctx) { quantized_avg_pool2d_in(ctx, Layout::kNhwc); }

// cortex_m::quantized_max_pool2d.out(Tensor input, int[] kernel_size, int[] stride, int[] padding,
//     int[] dilation, bool ceil_mode, int input_zero_point, int output_zero_point,
//     int activation_min, int activation_max, *, Tensor(a!) out)
void quantized_max_pool2d(KernelContext& ctx) {
  quantized_max_pool2d_in(ctx, Layout::kChannelsLast);
}
void quantized_max_pool2d_nhwc(KernelContext& ctx) { quantized_max_pool2d_in(ctx, Layout::kNhwc); }

}  // namespace hil::builtin
