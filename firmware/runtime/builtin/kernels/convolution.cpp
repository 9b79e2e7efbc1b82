// 2-D convolutions: the arithmetic of CMSIS-NN's arm_convolve_wrapper_s8 and
// arm_depthwise_conv_wrapper_s8. All their variants give the same bits, for sums are modulo 2^32
// and padding counts as the input's zero point, which adds nothing.
//
// The scratch tensor is CMSIS-NN's; this code needs none.
#include "runtime/builtin/kernels/convolution.h"

#include "runtime/builtin/kernel.h"
#include "runtime/builtin/kernels/block.h"

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

// Output pixels `begin` to `end` - 1 along one axis, whose windows have the same part of the kernel
// inside the image.
struct Run {
  int32_t begin;
  int32_t end;
  Steps inside;
};

Run run_from(int32_t begin, int32_t out, int32_t input, int32_t kernel, int32_t stride,
             int32_t padding, int32_t dilation) {
  const auto inside_of = [&](int32_t at) {
    const Steps inside = steps_inside(at * stride - padding, kernel, dilation, input);
    return inside.begin < inside.end ? inside : Steps{0, 0};
  };
  Run run = {begin, begin + 1, inside_of(begin)};
  while (run.end < out && inside_of(run.end) == run.inside) ++run.end;
  return run;
}

// A rectangle of output pixels. What all its windows have in common is worked out but once.
struct Region {
  int32_t batch;
  Run rows;
  Run columns;
};

template <typename Visit>
void for_each_region(const Convolution& conv, const Visit& visit) {
  const Window& window = conv.window;
  for (int32_t batch = 0; batch < conv.out.batches; ++batch) {
    for (int32_t y = 0; y < conv.out.height;) {
      const Run rows = run_from(y, conv.out.height, conv.input.height, window.kernel.y,
                                window.stride.y, window.padding.y, window.dilation.y);
      for (int32_t x = 0; x < conv.out.width;) {
        const Run columns = run_from(x, conv.out.width, conv.input.width, window.kernel.x,
                                     window.stride.x, window.padding.x, window.dilation.x);
        visit(Region{batch, rows, columns});
        x = columns.end;
      }
      y = rows.end;
    }
  }
}

// visit(strip) with all of the region's pixels, as many as fit at a time: from input channel
// `first` to output channel `channel`.
template <typename Visit>
void for_each_strip(const Convolution& conv, const Region& region, int32_t first, int32_t channel,
                    const Visit& visit) {
  const Window& window = conv.window;
  // Steps between pixels inside the image: a product that wraps is not used.
  const int32_t step = wrapping_multiply(window.stride.x, conv.input.channels);
  const int32_t row_step =
      wrapping_multiply(window.stride.y, conv.input.width * conv.input.channels);
  const int32_t out_step = conv.out.channels;
  const int32_t top = region.rows.begin * window.stride.y - window.padding.y +
                      region.rows.inside.begin * window.dilation.y;
  const int32_t left = region.columns.begin * window.stride.x - window.padding.x +
                       region.columns.inside.begin * window.dilation.x;
  // Only windows that see nothing of the image begin outside.
  const int8_t* from_row = conv.input.pixel(region.batch, clamp(top, 0, conv.input.height - 1),
                                            clamp(left, 0, conv.input.width - 1)) +
                           first;
  int8_t* to_row = conv.out.pixel(region.batch, region.rows.begin, region.columns.begin) + channel;
  const int32_t columns = region.columns.end - region.columns.begin;
  Strip strip;
  for (int32_t rows = region.rows.end - region.rows.begin; rows > 0; --rows) {
    const int8_t* from = from_row;
    int8_t* to = to_row;
    for (int32_t x = 0; x < columns; ++x, from += step, to += out_step) {
      strip.from[strip.pixels] = from;
      strip.to[strip.pixels] = to;
      if (++strip.pixels < kStrip) continue;
      visit(strip);
      strip.pixels = 0;
    }
    from_row += row_step;
    to_row += conv.out.width * out_step;
  }
  if (strip.pixels > 0) visit(strip);
}

Block block_of(const Convolution& conv, int32_t channel, int32_t channels, const int8_t* weights) {
  Block block = {channels,
                 weights,
                 {},
                 conv.multipliers.as<int32_t>() + channel,
                 conv.shifts.as<int32_t>() + channel};
  for (int32_t i = 0; i < channels; ++i) block.starts[i] = conv.bias_of(channel + i);
  return block;
}

// The pixels of input and weight that meet in a window; `item` is the size of a weight's pixel.
Grid grid_of(const Convolution& conv, const Region& region, int32_t item) {
  const Pair dilation = conv.window.dilation;
  const int32_t channels = conv.input.channels;
  return {region.rows.inside.end - region.rows.inside.begin,
          region.columns.inside.end - region.columns.inside.begin,
          {wrapping_multiply(dilation.y, conv.input.width * channels),
           wrapping_multiply(dilation.x, channels)},
          {conv.window.kernel.x * item, item}};
}

// The offset of the weight's first pixel that lies inside the image.
int32_t weight_at(const Convolution& conv, const Region& region, int32_t item) {
  return (region.rows.inside.begin * conv.window.kernel.x + region.columns.inside.begin) * item;
}

// Σ (x + offset)·w = Σ x·w + offset·Σ w: the second term is the same for all windows of a region.
void add_offset_share(const Convolution& conv, int32_t sum_of_weights, int32_t& start) {
  start = wrapping_add(start, wrapping_multiply(conv.input_offset, sum_of_weights));
}

int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }

// `channel` to `channel` + `count` - 1 are of the group whose first input channel is `first`.
void convolve_block(const Convolution& conv, const Region& region, int32_t first, int32_t channel,
                    int32_t count) {
  const int32_t depth = conv.weight.sizes[3];
  const int32_t filter_size = conv.window.kernel.y * conv.window.kernel.x * depth;
  const int8_t* filter =
      conv.weight.as<int8_t>() + channel * filter_size + weight_at(conv, region, depth);
  Grid grid = grid_of(conv, region, depth);
  int32_t length = depth;
  // If the pixels of a row are contiguous in input and weight, they are one long vector.
  if (depth == conv.input.channels && conv.window.dilation.x == 1 && grid.columns > 0) {
    length *= grid.columns;
    grid.columns = 1;
  }
  Block block = block_of(conv, channel, count, filter);
  if (kOffsetApart) {
    for (int32_t i = 0; i < count; ++i) {
      grid.for_each(filter + i * filter_size, [&](int32_t, const int8_t* weights) {
        add_offset_share(conv, sum_of(weights, static_cast<uint32_t>(length)), block.starts[i]);
      });
    }
  }
  for_each_strip(conv, region, first, channel, [&](Strip& strip) {
    sum_dots(grid, block, conv.input_offset, static_cast<uint32_t>(filter_size),
             static_cast<uint32_t>(length), strip);
    finish(block, conv.range(), strip);
  });
}

void convolve(const Convolution& conv) {
  const int32_t depth = conv.weight.sizes[3];
  const int32_t outs_per_group = conv.out.channels / (conv.input.channels / depth);
  for_each_region(conv, [&](const Region& region) {
    for (int32_t first = 0, end = 0; first < conv.input.channels; first += depth) {
      int32_t channel = end;
      end += outs_per_group;
      for (; channel < end; channel += kBlock) {
        convolve_block(conv, region, first, channel, smaller(end - channel, kBlock));
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

// Each output channel has an input channel of its own (`each`), or all of them have `first`.
void convolve_depthwise_block(const Convolution& conv, const Region& region, int32_t first,
                              bool each, int32_t channel, int32_t count) {
  const int32_t channels = conv.out.channels;
  const Grid grid = grid_of(conv, region, channels);
  const int8_t* weights = conv.weight.as<int8_t>() + weight_at(conv, region, channels) + channel;
  Block block = block_of(conv, channel, count, weights);
  const int8_t one = 1;
  int32_t sums_of_weights[kBlock] = {};
  add_products({grid.rows, grid.columns, {}, grid.b}, &one, false, weights, count, sums_of_weights);
  for (int32_t i = 0; i < count; ++i) add_offset_share(conv, sums_of_weights[i], block.starts[i]);
  for_each_strip(conv, region, first, channel, [&](Strip& strip) {
    sum_products(grid, block, each, strip);
    finish(block, conv.range(), strip);
  });
}

void convolve_depthwise(const Convolution& conv) {
  const bool each = conv.depth_multiplier == 1;
  const int32_t outs_per_group = each ? conv.out.channels : conv.depth_multiplier;
  for_each_region(conv, [&](const Region& region) {
    for (int32_t group = 0, end = 0; end < conv.out.channels; ++group) {
      int32_t channel = end;
      end += outs_per_group;
      for (; channel < end; channel += kBlock) {
        convolve_depthwise_block(conv, region, each ? channel : group, each, channel,
                                 smaller(end - channel, kBlock));
      }
    }
  });
}

void quantized_depthwise_conv2d_in(KernelContext& ctx, Layout layout) {
  const Convolution conv = read_convolution(ctx, layout, ConvolutionKind::kDepthwise);
  if (ctx.ok() && check_place(ctx, conv) && check_depthwise(ctx, conv)) convolve_depthwise(conv);
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
