#include "runtime/builtin/kernels/block.h"

namespace hil::builtin {
namespace {

// Sets unused channels in the last kLanes as well: a copy of constant size is compiled without a
// call.
void begin(const Block& block, Strip& strip) {
  for (int32_t pixel = 0; pixel < strip.pixels; ++pixel) {
    for (int32_t i = 0; i < block.channels; i += kLanes) {
      std::memcpy(strip.sums[pixel] + i, block.starts + i, kLanes * sizeof(int32_t));
    }
  }
}

}  // namespace

void sum_dots(const Grid& grid, const Block& block, int32_t offset, uint32_t stride,
              uint32_t length, Strip& strip) {
  begin(block, strip);
  const int32_t pixels = strip.pixels;
  const int32_t channels = block.channels;
  grid.for_each(block.weights, [&](int32_t at, const int8_t* weights) {
    int32_t i = 0;
    for (; i + kLanes <= channels; i += kLanes, weights += kLanes * stride) {
      for (int32_t pixel = 0; pixel < pixels; ++pixel) {
        add_dots(strip.from[pixel] + at, offset, weights, stride, length, strip.sums[pixel] + i);
      }
    }
    for (; i < channels; ++i, weights += stride) {
      for (int32_t pixel = 0; pixel < pixels; ++pixel) {
        int32_t& sum = strip.sums[pixel][i];
        sum = dot_with_offsets(strip.from[pixel] + at, kOffsetApart ? 0 : offset, weights, 0,
                               length, sum);
      }
    }
  });
}

void sum_products(const Grid& grid, const Block& block, bool each, Strip& strip) {
  begin(block, strip);
  for (int32_t pixel = 0; pixel < strip.pixels; ++pixel) {
    add_products(grid, strip.from[pixel], each, block.weights, block.channels, strip.sums[pixel]);
  }
}

namespace scalar {

void finish(const Block& block, const OutputRange& range, const Strip& strip) {
  for (int32_t i = 0; i < block.channels; ++i) {
    const int32_t multiplier = block.multipliers[i];
    const int32_t shift = block.shifts[i];
    for (int32_t pixel = 0; pixel < strip.pixels; ++pixel) {
      strip.to[pixel][i] = to_output(requantize(strip.sums[pixel][i], multiplier, shift), range);
    }
  }
}

}  // namespace scalar

#if defined(HIL_VECTOR_MVE)

void finish(const Block& block, const OutputRange& range, const Strip& strip) {
  const int32_t pixels = strip.pixels;
  for (int32_t i = 0; i < block.channels; i += 4) {
    const mve_pred16_t lanes = vctp32q(static_cast<uint32_t>(block.channels - i));
    const int32x4_t multiplier = vldrwq_z_s32(block.multipliers + i, lanes);
    const int32x4_t shift = vldrwq_z_s32(block.shifts + i, lanes);
    for (int32_t pixel = 0; pixel < pixels; ++pixel) {
      const int32x4_t scaled = requantize(vldrwq_s32(strip.sums[pixel] + i), multiplier, shift);
      vstrbq_p_s32(strip.to[pixel] + i, to_output(scaled, range), lanes);
    }
  }
}

#else

void finish(const Block& block, const OutputRange& range, const Strip& strip) {
  scalar::finish(block, range, strip);
}

#endif

}  // namespace hil::builtin
