// 2-D convolutions: the arithmetic of CMSIS-NN's arm_convolve_wrapper_s8 and
// arm_depthwise_conv_wrapper_s8. All their variants give the same bits, for sums are modulo 2^32
// and padding counts as the input's zero point, which adds nothing.
//
// The scratch tensor is CMSIS-NN's; this code needs none.
#include "runtime/builtin/kernels/convolution.h"

#include "runtime/builtin/kernel.h"
#include "runtime/builtin/kernels/dot.h"

namespace hil::builtin {
namespace {

bool check_per_channel(KernelContext& ctx, const Convolution& conv, const Tensor& tensor,
                       const char* name) {
  return ctx.require(tensor.numel == static_cast<uint32_t>(conv.out.channels), name, " is ", tensor,
                     ", one item for each of the ", conv.out.channels, " output channels needed") &&
         ctx.require_disjoint(*conv.out.tensor, tensor, name);
}

bool check_shifts(KernelContext& ctx, const Convolution& conv) {
  const int32_t* shifts = conv.shifts.as<int32_t>();
  for (int32_t channel = 0; channel < conv.out.channels; ++channel) {
    if (!ctx.require(shifts[channel] >= -kMaxRightShift && shifts[channel] <= kMaxLeftShift,
                     "requantize_shifts item ", channel, " is ", shifts[channel],
                     ", the operator takes ", -kMaxRightShift, " to ", kMaxLeftShift)) {
      return false;
    }
  }
  return true;
}

bool check_place(KernelContext& ctx, const Convolution& conv) {
  return check_convolution(ctx, conv) &&
         check_window(ctx, conv.window, conv.input, conv.out, false);
}

// Grouped or dense: weight is [out, height, width, in / groups].

bool check_channels(KernelContext& ctx, const Convolution& conv) {
  const int32_t per_group = conv.weight.sizes[3];
  if (!ctx.require(conv.weight.sizes[0] == conv.out.channels, "weight is ", conv.weight,
                   ", out is ", *conv.out.tensor, ": the number of output channels differs") ||
      !ctx.require(
          per_group >= 1 && conv.input.channels >= 1 && conv.input.channels % per_group == 0,
          "weight is ", conv.weight, ", input is ", *conv.input.tensor,
          ": the input's channels do not split into groups of ", per_group)) {
    return false;
  }
  const int32_t groups = conv.input.channels / per_group;
  return ctx.require(conv.out.channels % groups == 0, "the ", conv.out.channels,
                     " output channels do not split into ", groups, " groups");
}

// The part of a window that lies inside the input, for one output pixel.
struct Place {
  int32_t batch;
  int32_t top;
  int32_t left;
  Steps rows;
  Steps columns;
};

Place place_of(const Convolution& conv, int32_t batch, int32_t top, int32_t left) {
  const Window& window = conv.window;
  return {batch, top, left,
          steps_inside(top, window.kernel.y, window.dilation.y, conv.input.height),
          steps_inside(left, window.kernel.x, window.dilation.x, conv.input.width)};
}

const int8_t* input_at(const Convolution& conv, const Place& place, int32_t row, int32_t column) {
  return conv.input.pixel(place.batch, place.top + row * conv.window.dilation.y,
                          place.left + column * conv.window.dilation.x);
}

// `filter` is that of one output channel, `first` the first input channel of its group.
int32_t accumulate(const Convolution& conv, const Place& place, const int8_t* filter, int32_t first,
                   int32_t sum) {
  const int32_t depth = conv.weight.sizes[3];
  const int32_t width = conv.window.kernel.x;
  // Where the pixels of a row follow one another in both, they are one long vector.
  const bool dense = depth == conv.input.channels && conv.window.dilation.x == 1;
  const int32_t stride = dense ? place.columns.end - place.columns.begin : 1;
  if (stride == 0) return sum;
  for (int32_t row = place.rows.begin; row < place.rows.end; ++row) {
    for (int32_t column = place.columns.begin; column < place.columns.end; column += stride) {
      sum = dot_with_offsets(input_at(conv, place, row, column) + first, conv.input_offset,
                             filter + (row * width + column) * depth, 0,
                             static_cast<uint32_t>(stride * depth), sum);
    }
  }
  return sum;
}

void convolve(const Convolution& conv) {
  const int32_t depth = conv.weight.sizes[3];
  const int32_t filter_size = conv.window.kernel.y * conv.window.kernel.x * depth;
  const int32_t outs_per_group = conv.out.channels / (conv.input.channels / depth);
  for_each_pixel(
      conv.out, conv.window, [&](int32_t batch, int32_t top, int32_t left, int8_t* pixel) {
        const Place place = place_of(conv, batch, top, left);
        const int8_t* filter = conv.weight.as<int8_t>();
        int32_t channel = 0;
        for (int32_t first = 0; first < conv.input.channels; first += depth) {
          for (int32_t i = 0; i < outs_per_group; ++i, ++channel, filter += filter_size) {
            pixel[channel] =
                conv.finish(accumulate(conv, place, filter, first, conv.bias_of(channel)), channel);
          }
        }
      });
}

void quantized_conv2d_in(KernelContext& ctx, Layout layout) {
  const Convolution conv = read_convolution(ctx, layout, ConvolutionKind::kPlain);
  if (ctx.ok() && check_place(ctx, conv) && check_channels(ctx, conv)) convolve(conv);
}

// Depthwise: weight is [1, height, width, in * depth_multiplier].

bool check_depthwise(KernelContext& ctx, const Convolution& conv) {
  return ctx.require(conv.input.batches == 1, "input is ", *conv.input.tensor,
                     ": CMSIS-NN's depthwise convolution takes one batch") &&
         ctx.require(conv.weight.sizes[0] == 1 && conv.weight.sizes[3] == conv.out.channels,
                     "weight is ", conv.weight, ", out is ", *conv.out.tensor,
                     ": [1, height, width, output channels] needed") &&
         ctx.require(int64_t{conv.input.channels} * conv.depth_multiplier == conv.out.channels,
                     "input is ", *conv.input.tensor, ", out is ", *conv.out.tensor,
                     ": the output channels are not ", conv.depth_multiplier, " times the input's");
}

// Channels are summed this many at a time, in registers or on the stack.
constexpr int32_t kBlock = 16;

void sum_block(const Convolution& conv, const Place& place, int32_t first, int32_t count,
               int32_t (&sums)[kBlock]) {
  const int8_t* weights = conv.weight.as<int8_t>() + first;
  for (int32_t i = 0; i < count; ++i) sums[i] = conv.bias_of(first + i);
  for (int32_t row = place.rows.begin; row < place.rows.end; ++row) {
    for (int32_t column = place.columns.begin; column < place.columns.end; ++column) {
      const int8_t* input = input_at(conv, place, row, column) + first;
      const int8_t* weight = weights + (row * conv.window.kernel.x + column) * conv.out.channels;
      for (int32_t i = 0; i < count; ++i) {
        sums[i] = wrapping_add(sums[i], (input[i] + conv.input_offset) * weight[i]);
      }
    }
  }
}

void convolve_depthwise(const Convolution& conv) {
  for_each_pixel(conv.out, conv.window,
                 [&](int32_t batch, int32_t top, int32_t left, int8_t* pixel) {
                   const Place place = place_of(conv, batch, top, left);
                   for (int32_t first = 0; first < conv.out.channels; first += kBlock) {
                     const int32_t left_over = conv.out.channels - first;
                     const int32_t count = left_over < kBlock ? left_over : kBlock;
                     int32_t sums[kBlock];
                     sum_block(conv, place, first, count, sums);
                     for (int32_t i = 0; i < count; ++i) {
                       pixel[first + i] = conv.finish(sums[i], first + i);
                     }
                   }
                 });
}

int32_t sum_channel(const Convolution& conv, const Place& place, int32_t in, int32_t out) {
  int32_t sum = conv.bias_of(out);
  for (int32_t row = place.rows.begin; row < place.rows.end; ++row) {
    for (int32_t column = place.columns.begin; column < place.columns.end; ++column) {
      const int32_t input = input_at(conv, place, row, column)[in] + conv.input_offset;
      const int32_t at = (row * conv.window.kernel.x + column) * conv.out.channels + out;
      sum = wrapping_add(sum, input * conv.weight.as<int8_t>()[at]);
    }
  }
  return sum;
}

void convolve_depthwise_many(const Convolution& conv) {
  for_each_pixel(conv.out, conv.window,
                 [&](int32_t batch, int32_t top, int32_t left, int8_t* pixel) {
                   const Place place = place_of(conv, batch, top, left);
                   int32_t out = 0;
                   for (int32_t in = 0; in < conv.input.channels; ++in) {
                     for (int32_t i = 0; i < conv.depth_multiplier; ++i, ++out) {
                       pixel[out] = conv.finish(sum_channel(conv, place, in, out), out);
                     }
                   }
                 });
}

void quantized_depthwise_conv2d_in(KernelContext& ctx, Layout layout) {
  const Convolution conv = read_convolution(ctx, layout, ConvolutionKind::kDepthwise);
  if (!ctx.ok() || !check_place(ctx, conv) || !check_depthwise(ctx, conv)) return;
  if (conv.depth_multiplier == 1) {
    convolve_depthwise(conv);
  } else {
    convolve_depthwise_many(conv);
  }
}

}  // namespace

Convolution read_convolution(KernelContext& ctx, Layout layout, ConvolutionKind kind) {
  const Tensor& input = ctx.tensor("input", DType::kInt8);
  const Tensor& weight = ctx.tensor("weight", DType::kInt8);
  const Tensor* bias = ctx.optional_tensor("bias", DType::kInt32);
  const Pair stride = pair_of(ctx, "stride", 1);
  const Pair padding = pair_of(ctx, "padding", 0);
  const bool transposed = kind == ConvolutionKind::kTransposed;
  const Pair output_padding = transposed ? pair_of(ctx, "output_padding", 0) : Pair();
  const Pair dilation = pair_of(ctx, "dilation", 1);
  const bool depthwise = kind == ConvolutionKind::kDepthwise;
  const int32_t depth_multiplier =
      depthwise ? ctx.integer("depth_multiplier", 1, INT32_MAX) : int32_t{1};
  const int32_t input_offset = ctx.integer("input_offset", -128, 128);
  const int32_t output_offset = ctx.integer("output_offset", INT8_MIN, INT8_MAX);
  const Tensor& multipliers = ctx.tensor("requantize_multipliers", DType::kInt32);
  const Tensor& shifts = ctx.tensor("requantize_shifts", DType::kInt32);
  const int32_t activation_min = ctx.integer("activation_min", INT8_MIN, INT8_MAX);
  const int32_t activation_max = ctx.integer("activation_max", INT8_MIN, INT8_MAX);
  const Tensor& scratch = ctx.tensor("scratch");
  if (transposed) ctx.tensor("output_scratch");
  const Tensor& out = ctx.out(DType::kInt8);
  ctx.require(!ctx.ok() || weight.rank == 4, "weight is ", weight, ", 4 dimensions needed");
  const Window window = {{}, stride, padding, dilation};
  Convolution conv = {{},
                      {},
                      weight,
                      bias,
                      multipliers,
                      shifts,
                      scratch,
                      window,
                      output_padding,
                      depth_multiplier,
                      input_offset,
                      output_offset,
                      activation_min,
                      activation_max};
  if (!ctx.done()) return conv;
  conv.input = image_of(ctx, input, "input", layout);
  conv.out = image_of(ctx, out, "out", layout);
  conv.window.kernel = {weight.sizes[1], weight.sizes[2]};
  return conv;
}

bool check_convolution(KernelContext& ctx, const Convolution& conv) {
  return ctx.require(is_row_major(conv.weight), "weight is not contiguous") &&
         // NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): all tensors have been read
         ctx.require(conv.input.batches == conv.out.batches, "input is ", *conv.input.tensor,
                     ", out is ", *conv.out.tensor, ": the number of batches differs") &&
         (conv.bias == nullptr || check_per_channel(ctx, conv, *conv.bias, "bias")) &&
         check_per_channel(ctx, conv, conv.multipliers, "requantize_multipliers") &&
         check_per_channel(ctx, conv, conv.shifts, "requantize_shifts") &&
         check_shifts(ctx, conv) &&
         ctx.require(conv.activation_min <= conv.activation_max, "activation_min ",
                     conv.activation_min, " is above activation_max ", conv.activation_max) &&
         ctx.require_disjoint(*conv.out.tensor, *conv.input.tensor, "input") &&
         ctx.require_disjoint(*conv.out.tensor, conv.weight, "weight");
}

// cortex_m::quantized_conv2d.out(Tensor input, Tensor weight, Tensor? bias, int[] stride,
//     int[] padding, int[] dilation, int input_offset, int output_offset,
//     Tensor requantize_multipliers, Tensor requantize_shifts, int activation_min,
//     int activation_max, Tensor scratch, *, Tensor(a!) out)
void quantized_conv2d(KernelContext& ctx) { quantized_conv2d_in(ctx, Layout::kChannelsLast); }
void quantized_conv2d_nhwc(KernelContext& ctx) { quantized_conv2d_in(ctx, Layout::kNhwc); }

// cortex_m::quantized_depthwise_conv2d.out: the same with `int depth_multiplier` after dilation
void quantized_depthwise_conv2d(KernelContext& ctx) {
  quantized_depthwise_conv2d_in(ctx, Layout::kChannelsLast);
}
void quantized_depthwise_conv2d_nhwc(KernelContext& ctx) {
  quantized_depthwise_conv2d_in(ctx, Layout::kNhwc);
}

}  // namespace hil::builtin
