// For tests only (HIL_CMSIS_NN_SCRATCH): uses the scratch of a transposed convolution, which needs
// none here, to the extent that CMSIS-NN does, planned or not (known bug 1 in docs/known_bugs.md).
#include "runtime/builtin/kernels/convolution.h"

namespace hil::builtin {
namespace {

constexpr int32_t kReverseChannels = 16;  // CMSIS-NN's REVERSE_TCOL_EFFICIENT_THRESHOLD

int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

}  // namespace

// A ring of max(kernel height, stride) rows, each as wide as a row of the input makes, of sums in
// int32, which begin as the bias.
void use_scratch_as_cmsis_nn(const Convolution& conv) {
  const Pair stride = conv.window.stride;
  // That becomes a convolution with the filter reversed, whose buffers are of another kind.
  if (stride.x <= 2 && stride.y <= 2 && conv.input.channels > kReverseChannels) return;
  const int32_t rows = larger(conv.window.kernel.y, stride.y);
  const int32_t columns =
      (conv.input.width - 1) * stride.x + larger(conv.window.kernel.x, stride.x);
  int32_t* sum = conv.scratch.as<int32_t>();
  for (int32_t pixel = 0; pixel < rows * columns; ++pixel) {
    for (int32_t channel = 0; channel < conv.out.channels; ++channel)
      *sum++ = conv.bias_of(channel);
  }
}

}  // namespace hil::builtin
