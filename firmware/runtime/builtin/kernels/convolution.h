// Common parts of the quantised convolutions: a bias, a multiplier and a shift for each output
// channel.
#pragma once

#include "runtime/builtin/kernels/image.h"
#include "runtime/builtin/kernels/requantize.h"

namespace hil::builtin {

struct Convolution {
  Image input;
  Image out;
  const Tensor& weight;
  const Tensor* bias;
  const Tensor& multipliers;
  const Tensor& shifts;
  const Tensor& scratch;
  Window window;
  Pair output_padding;
  int32_t depth_multiplier;
  int32_t input_offset;
  int32_t output_offset;
  int32_t activation_min;
  int32_t activation_max;

  int32_t bias_of(int32_t channel) const {
    return bias == nullptr ? 0 : bias->as<int32_t>()[channel];
  }

  OutputRange range() const { return {output_offset, activation_min, activation_max}; }

  int8_t finish(int32_t sum, int32_t channel) const {
    return to_output(
        requantize(sum, multipliers.as<int32_t>()[channel], shifts.as<int32_t>()[channel]),
        range());
  }
};

// The schemas differ: a depthwise convolution has a depth multiplier, a transposed one an output
// padding and a second scratch.
enum class ConvolutionKind : uint8_t { kPlain, kDepthwise, kTransposed };

// All arguments. The kernel's size is that of dimensions 1 and 2 of the weight.
Convolution read_convolution(KernelContext& ctx, Layout layout, ConvolutionKind kind);

// Everything but the window and the channels.
bool check_convolution(KernelContext& ctx, const Convolution& conv);

// cmsis_nn_scratch.cpp: for tests of red zones.
void use_scratch_as_cmsis_nn(const Convolution& conv);

}  // namespace hil::builtin
