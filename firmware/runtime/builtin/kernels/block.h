// Blocks of output channels of strips of output pixels: what convolutions and fully connected
// layers consist of.
#pragma once

#include "runtime/builtin/kernels/dot.h"

namespace hil::builtin {

constexpr int32_t kStrip = 4;   // pixels
constexpr int32_t kBlock = 16;  // channels

// Output pixels: where the input begins that each is made from, its sums, and where it is written
// to.
struct Strip {
  int32_t pixels = 0;
  const int8_t* from[kStrip];
  int8_t* to[kStrip];
  int32_t sums[kStrip][kBlock];
};

// Output channels.
struct Block {
  int32_t channels;
  const int8_t* weights;
  int32_t starts[kBlock];  // what the sums begin with
  const int32_t* multipliers;
  const int32_t* shifts;
};

// Each sum is Σ (input + offset)·weight over vectors of `length` at the grid's places; the weights
// of the channels lie `stride` bytes apart. Where kOffsetApart, the offset's share is in the
// starts.
void sum_dots(const Grid& grid, const Block& block, int32_t offset, uint32_t stride,
              uint32_t length, Strip& strip);

// Each sum is Σ input·weight over the grid's places; the weights of the channels are neighbours,
// and so are their inputs if they have one `each`.
void sum_products(const Grid& grid, const Block& block, bool each, Strip& strip);

// Sums to outputs.
void finish(const Block& block, const OutputRange& range, const Strip& strip);

namespace scalar {

void finish(const Block& block, const OutputRange& range, const Strip& strip);

}  // namespace scalar
}  // namespace hil::builtin
