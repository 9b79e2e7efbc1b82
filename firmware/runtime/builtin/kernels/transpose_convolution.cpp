// 2-D transposed convolution: the arithmetic of CMSIS-NN's arm_transpose_conv_s8, each output pixel
// gathered from the input pixels that reach it. Sums are modulo 2^32, so their order does not
// matter.
//
// The scratch tensors are CMSIS-NN's; this code needs none.
#include "runtime/builtin/kernel.h"
#include "runtime/builtin/kernels/convolution.h"
#include "runtime/builtin/kernels/dot.h"

namespace hil::builtin {
namespace {

// The size of the output that the last of `input` steps ends.
bool check_axis(KernelContext& ctx, const char* axis, int32_t input, int32_t kernel, int32_t stride,
                int32_t padding, int32_t out) {
  const int64_t expected = (int64_t{input} - 1) * stride - 2 * int64_t{padding} + kernel;
  return ctx.require(input >= 1 && kernel >= 1, axis, ": input of ", input, ", kernel of ", kernel,
                     ": neither can be empty") &&
         ctx.require(expected == out, axis, ": out is ", out, ", an input of ", input,
                     " with kernel ", kernel, ", stride ", stride, " and padding ", padding,
                     " gives ", expected) &&
         ctx.require(int64_t{input} * stride + kernel <= INT32_MAX, axis, ": an input of ", input,
                     " with stride ", stride, " does not fit in int32");
}

bool check(KernelContext& ctx, const Convolution& conv) {
  const Window& window = conv.window;
  return check_convolution(ctx, conv) &&
         ctx.require(conv.weight.sizes[0] == conv.out.channels &&
                         conv.weight.sizes[3] == conv.input.channels,
                     "weight is ", conv.weight, ", input is ", *conv.input.tensor, ", out is ",
                     *conv.out.tensor, ": [out, height, width, in] channels needed") &&
         ctx.require(window.dilation.y == 1 && window.dilation.x == 1,
                     "dilation is not 1: CMSIS-NN has no such transposed convolution") &&
         ctx.require(conv.output_padding.y == 0 && conv.output_padding.x == 0,
                     "output_padding is not 0: CMSIS-NN leaves those rows unwritten") &&
         check_axis(ctx, "height", conv.input.height, window.kernel.y, window.stride.y,
                    window.padding.y, conv.out.height) &&
         check_axis(ctx, "width", conv.input.width, window.kernel.x, window.stride.x,
                    window.padding.x, conv.out.width);
}

// The places along one axis from which the input reaches an output place that lies `at` from the
// start of the padded output: input `first`, `first` - 1, ... with kernel steps `step`,
// `step` + stride, ...
struct Reach {
  int32_t first;
  int32_t step;
};

Reach reach_of(int32_t at, int32_t stride, int32_t size) {
  const int32_t nearest = at / stride;
  const int32_t first = nearest < size ? nearest : size - 1;
  return {first, at - first * stride};
}

int32_t accumulate(const Convolution& conv, int32_t batch, const Reach& rows, const Reach& columns,
                   const int8_t* filter, int32_t sum) {
  const Window& window = conv.window;
  const int32_t depth = conv.input.channels;
  for (int32_t y = rows.first, row = rows.step; y >= 0 && row < window.kernel.y;
       --y, row += window.stride.y) {
    for (int32_t x = columns.first, column = columns.step; x >= 0 && column < window.kernel.x;
         --x, column += window.stride.x) {
      sum = dot_with_offsets(conv.input.pixel(batch, y, x), conv.input_offset,
                             filter + (row * window.kernel.x + column) * depth, 0,
                             static_cast<uint32_t>(depth), sum);
    }
  }
  return sum;
}

void convolve(const Convolution& conv) {
  const Window& window = conv.window;
  const int32_t filter_size = window.kernel.y * window.kernel.x * conv.input.channels;
  int8_t* to = conv.out.tensor->as<int8_t>();
  for (int32_t batch = 0; batch < conv.out.batches; ++batch) {
    for (int32_t y = 0; y < conv.out.height; ++y) {
      const Reach rows = reach_of(y + window.padding.y, window.stride.y, conv.input.height);
      for (int32_t x = 0; x < conv.out.width; ++x) {
        const Reach columns = reach_of(x + window.padding.x, window.stride.x, conv.input.width);
        const int8_t* filter = conv.weight.as<int8_t>();
        for (int32_t channel = 0; channel < conv.out.channels; ++channel, filter += filter_size) {
          const int32_t bias = conv.bias_of(channel);
          *to++ = conv.finish(accumulate(conv, batch, rows, columns, filter, bias), channel);
        }
      }
    }
  }
}

void quantized_transpose_conv2d_in(KernelContext& ctx, Layout layout) {
  const Convolution conv = read_convolution(ctx, layout, ConvolutionKind::kTransposed);
  if (!ctx.ok() || !check(ctx, conv)) return;
#ifdef HIL_CMSIS_NN_SCRATCH
  use_scratch_as_cmsis_nn(conv);
#endif
  convolve(conv);
}

}  // namespace

// cortex_m::quantized_transpose_conv2d.out(Tensor input, Tensor weight, Tensor? bias, int[] stride,
//     int[] padding, int[] output_padding, int[] dilation, int input_offset, int output_offset,
//     Tensor requantize_multipliers, Tensor requantize_shifts, int activation_min,
//     int activation_max, Tensor scratch, Tensor output_scratch, *, Tensor(a!) out)
void quantized_transpose_conv2d(KernelContext& ctx) {
  quantized_transpose_conv2d_in(ctx, Layout::kChannelsLast);
}
void quantized_transpose_conv2d_nhwc(KernelContext& ctx) {
  quantized_transpose_conv2d_in(ctx, Layout::kNhwc);
}

}  // namespace hil::builtin
