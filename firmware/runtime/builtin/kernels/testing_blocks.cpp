// For tests only: what convolutions consist of, in this ISA's form and in the scalar one.
#include <cstring>

#include "runtime/builtin/kernel.h"
#include "runtime/builtin/kernels/add.h"
#include "runtime/builtin/kernels/block.h"

namespace hil::builtin {
namespace {

constexpr int32_t kMost = 64;  // items

bool dots_agree(const int8_t* a, int32_t offset, const int8_t* b, uint32_t stride, uint32_t count) {
  int32_t plain[kLanes] = {1, -2, INT32_MAX, INT32_MIN};
  int32_t vector[kLanes];
  for (uint32_t i = 0; i < kLanes; ++i) {
    const int32_t sum = kOffsetApart ? sum_of(b + i * stride, count) : 0;
    vector[i] = wrapping_add(plain[i], wrapping_multiply(sum, offset));
  }
  scalar::add_dots(a, offset, b, stride, count, plain);
  add_dots(a, offset, b, stride, count, vector);
  return std::memcmp(plain, vector, sizeof(plain)) == 0;
}

bool products_agree(const Grid& grid, const int8_t* a, bool each, const int8_t* b, int32_t count) {
  int32_t plain[kMost];
  int32_t vector[kMost];
  for (int32_t i = 0; i < kMost; ++i) plain[i] = vector[i] = wrapping_multiply(i, 0x01000193);
  scalar::add_products(grid, a, each, b, count, plain);
  add_products(grid, a, each, b, count, vector);
  return std::memcmp(plain, vector, sizeof(plain)) == 0;
}

// Reads a word for each channel, and one for each sum.
bool outputs_agree(const int32_t* words, int32_t channels, int32_t pixels) {
  int8_t plain[kStrip][kBlock] = {};
  int8_t vector[kStrip][kBlock] = {};
  int32_t multipliers[kBlock];
  int32_t shifts[kBlock];
  const Block block = {channels, nullptr, {}, multipliers, shifts};
  Strip strip;
  strip.pixels = pixels;
  for (int32_t i = 0; i < channels; ++i) {
    // Not INT32_MIN, whose square saturates in one form and wraps in the other.
    multipliers[i] = words[i] | 1;
    shifts[i] = words[i] % (kMaxLeftShift + 1);
    for (int32_t pixel = 0; pixel < pixels; ++pixel) {
      strip.sums[pixel][i] = words[(1 + pixel) * channels + i] >> (words[i] & 31);
    }
  }
  const OutputRange range = {words[0] % 128, -100, 90};
  for (int32_t pixel = 0; pixel < pixels; ++pixel) strip.to[pixel] = plain[pixel];
  scalar::finish(block, range, strip);
  for (int32_t pixel = 0; pixel < pixels; ++pixel) strip.to[pixel] = vector[pixel];
  finish(block, range, strip);
  return std::memcmp(plain, vector, sizeof(plain)) == 0;
}

bool additions_agree(const int32_t* words, const int8_t* a, const int8_t* b, uint32_t count) {
  int8_t plain[kMost] = {};
  int8_t vector[kMost] = {};
  const auto scaling = [&](int i) { return Scaling{words[i] | 1, words[i + 1] % 12}; };
  const Addition addition = {
      {a[0], scaling(0)}, {b[0], scaling(1)}, scaling(2), {words[3] % 128, -128, 120}};
  scalar::add_all(addition, a, b, count, plain);
  add_all(addition, a, b, count, vector);
  return std::memcmp(plain, vector, sizeof(plain)) == 0;
}

struct Tally {
  int32_t cases = 0;
  int32_t different = 0;

  void count(bool agree) {
    ++cases;
    different += agree ? 0 : 1;
  }
};

Tally all_dots(const int8_t* a, int32_t offset, const int8_t* b, uint32_t length) {
  Tally tally;
  for (uint32_t start = 0; start <= length; ++start) {
    for (uint32_t stride = 1; stride <= 3; ++stride) {
      for (uint32_t count = 0; start + count + (kLanes - 1) * stride <= length; ++count) {
        tally.count(dots_agree(a + start, offset, b + start, stride, count));
      }
    }
  }
  return tally;
}

Tally all_products(const int8_t* a, const int8_t* b, int32_t length) {
  Tally tally;
  for (int32_t rows = 0; rows <= 3; ++rows) {
    for (int32_t columns = 0; columns <= 3; ++columns) {
      for (int32_t count = 1; count <= kMost && rows * columns * count <= length; ++count) {
        const Grid::Steps dense = {columns * count, count};
        tally.count(products_agree({rows, columns, dense, dense}, a, true, b, count));
        tally.count(products_agree({rows, columns, {1, 2}, dense}, a, false, b, count));
      }
    }
  }
  return tally;
}

Tally all_outputs(const int32_t* words) {
  Tally tally;
  for (int32_t pixels = 1; pixels <= kStrip; ++pixels) {
    for (int32_t channels = 1; channels <= kBlock; ++channels) {
      tally.count(outputs_agree(words, channels, pixels));
    }
  }
  return tally;
}

Tally all_additions(const int32_t* words, const int8_t* a, const int8_t* b, uint32_t length) {
  Tally tally;
  for (uint32_t count = 0; count <= length; ++count) {
    tally.count(additions_agree(words, a, b, count));
  }
  return tally;
}

}  // namespace

// hil_test::blocks.out(Tensor a, Tensor b, Tensor words, int offset, *, Tensor(a!) out)
//
// For add_dots, add_products, finish and add_all two items of out each: in how many cases the form
// of this ISA was compared with the scalar one, and in how many of them it differs.
void test_blocks(KernelContext& ctx) {
  const Tensor& a = ctx.tensor("a", DType::kInt8);
  const Tensor& b = ctx.tensor("b", DType::kInt8);
  const Tensor& words = ctx.tensor("words", DType::kInt32);
  const int32_t offset = ctx.integer("offset", -128, 128);
  const Tensor& out = ctx.out(DType::kInt32);
  if (!ctx.done() ||
      !ctx.require(a.numel == kMost && b.numel == kMost && out.numel == 8 &&
                       words.numel == (1 + kStrip) * kBlock,
                   "a is ", a, ", b is ", b, ", words are ", words, ", out is ", out)) {
    return;
  }
  const int8_t* x = a.as<int8_t>();
  const int8_t* y = b.as<int8_t>();
  const Tally tallies[] = {all_dots(x, offset, y, kMost), all_products(x, y, kMost),
                           all_outputs(words.as<int32_t>()),
                           all_additions(words.as<int32_t>(), x, y, kMost)};
  int32_t* to = out.as<int32_t>();
  for (const Tally& tally : tallies) {
    *to++ = tally.cases;
    *to++ = tally.different;
  }
}

}  // namespace hil::builtin
