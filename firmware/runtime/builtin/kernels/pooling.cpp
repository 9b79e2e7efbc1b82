// 2-D pooling: the arithmetic of CMSIS-NN's arm_avgpool_s8 and arm_max_pool_s8.
//
// The scratch tensor is CMSIS-NN's; this code needs none.
#include "runtime/builtin/kernels/image.h"
#include "runtime/builtin/kernels/kernels.h"
#include "runtime/builtin/kernels/requantize.h"

namespace hil::builtin {
namespace {

struct Pooling {
  Image input;
  Image out;
  Window window;
  bool ceil_mode;
};

Pooling read(KernelContext& ctx, Layout layout, int out, Pair dilation, bool ceil_mode) {
  const Tensor& from = ctx.tensor(0, "input", DType::kInt8);
  const Tensor& to = ctx.out(out, DType::kInt8);
  const Window window = {pair_of(ctx, 1, "kernel_size", 1), pair_of(ctx, 2, "stride", 1),
                         pair_of(ctx, 3, "padding", 0), dilation};
  if (!ctx.ok()) return {};
  return {image_of(ctx, from, "input", layout), image_of(ctx, to, "out", layout), window,
          ceil_mode};
}

// Padding of at most half a kernel, so that every window has pixels of the image in it.
bool check(KernelContext& ctx, const Pooling& pooling) {
  const Window& window = pooling.window;
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
  const Pooling pooling = read(ctx, layout, 9, {1, 1}, ctx.boolean(4, "ceil_mode"));
  // Input and output have the same quantisation, so CMSIS-NN takes no notice of these.
  ctx.integer(5, "zero_point");
  ctx.integer(6, "multiplier");
  ctx.integer(7, "shift");
  ctx.tensor(8, "scratch");
  if (!ctx.ok() || !check(ctx, pooling)) return;
  constexpr uint32_t kMaxItems = 1u << 23;  // so that no sum of int8 leaves int32
  if (!ctx.require(pooling.input.tensor->numel <= kMaxItems, "input is ", *pooling.input.tensor,
                   ", too large")) {
    return;
  }
  average(pooling);
}

void quantized_max_pool2d_in(KernelContext& ctx, Layout layout) {
  const bool ceil_mode = ctx.boolean(5, "ceil_mode");
  const Pooling pooling = read(ctx, layout, 10, pair_of(ctx, 4, "dilation", 1), ceil_mode);
  const int32_t input_zero_point = ctx.integer(6, "input_zero_point", INT8_MIN, INT8_MAX);
  const int32_t output_zero_point = ctx.integer(7, "output_zero_point", INT8_MIN, INT8_MAX);
  const int32_t activation_min = ctx.integer(8, "activation_min", INT8_MIN, INT8_MAX);
  const int32_t activation_max = ctx.integer(9, "activation_max", INT8_MIN, INT8_MAX);
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

}  // namespace

// cortex_m::quantized_avg_pool2d.out(Tensor input, int[] kernel_size, int[] stride, int[] padding,
//     bool ceil_mode, int zero_point, int multiplier, int shift, Tensor scratch, *,
//     Tensor(a!) out)
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
