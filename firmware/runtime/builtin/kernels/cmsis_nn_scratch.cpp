// For tests only (HIL_CMSIS_NN_SCRATCH): the transposed convolution, which needs no scratch here,
// first uses its scratch to the extent that CMSIS-NN does, planned or not. docs/redzones.md has the
// formulas and their source lines.
#include "runtime/builtin/kernels/image.h"
#include "runtime/builtin/kernels/kernels.h"

namespace hil::builtin {
namespace {

constexpr int32_t kReverseChannels = 16;  // CMSIS-NN's REVERSE_TCOL_EFFICIENT_THRESHOLD

int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

// A ring of max(kernel height, stride) rows, each as wide as a row of the input makes, of sums in
// int32. It is set to the bias, or to 0.
void fill_ring(const Image& input, const Tensor& weight, Pair stride, const Tensor* bias,
               const Tensor& scratch) {
  const int32_t channels = static_cast<int32_t>(weight.size(0));
  const int32_t rows = larger(static_cast<int32_t>(weight.size(1)), stride.y);
  const int32_t columns =
      (input.width - 1) * stride.x + larger(static_cast<int32_t>(weight.size(2)), stride.x);
  int32_t* sum = scratch.as<int32_t>();
  for (int32_t pixel = 0; pixel < rows * columns; ++pixel) {
    for (int32_t channel = 0; channel < channels; ++channel) {
      *sum++ = bias == nullptr ? 0 : bias->as<int32_t>()[channel];
    }
  }
}

void use_scratch(KernelContext& ctx, Layout layout) {
  const Tensor& weight = ctx.tensor(1, "weight", DType::kInt8);
  const Tensor* bias = ctx.optional_tensor(2, "bias", DType::kInt32);
  const Pair stride = pair_of(ctx, 3, "stride", 1);
  const Tensor& scratch = ctx.tensor(13, "scratch", DType::kUint8);
  const Image input = image_of(ctx, ctx.tensor(0, "input", DType::kInt8), "input", layout);
  if (!ctx.ok() || !ctx.require(weight.rank == 4, "weight is ", weight)) return;
  // Otherwise it becomes a convolution of the reversed filter, whose buffers are of their own kind.
  if (stride.x > 2 || stride.y > 2 || input.channels <= kReverseChannels) {
    fill_ring(input, weight, stride, bias, scratch);
  }
}

}  // namespace

void transpose_conv2d_with_scratch(KernelContext& ctx) { use_scratch(ctx, Layout::kChannelsLast); }

void transpose_conv2d_nhwc_with_scratch(KernelContext& ctx) { use_scratch(ctx, Layout::kNhwc); }

}  // namespace hil::builtin
