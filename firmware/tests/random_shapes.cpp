// Convolutions and fully connected layers of random shapes, held against their definition: every
// place of a window one by one, whatever blocks the kernels work in.
#include <doctest/doctest.h>

#include <random>

#include "runtime/builtin/kernels/requantize.h"
#include "tests/call.h"

namespace hil::builtin {
namespace {

using Items = std::vector<int8_t>;
using Words = std::vector<int32_t>;

// The item at a place that is counted in int32, as the kernels count.
template <typename Item>
Item& at(std::vector<Item>& items, int32_t place) {
  return items[static_cast<size_t>(place)];
}
template <typename Item>
const Item& at(const std::vector<Item>& items, int32_t place) {
  return items[static_cast<size_t>(place)];
}

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}

  int32_t between(int32_t low, int32_t high) {
    const uint32_t range = static_cast<uint32_t>(high) - static_cast<uint32_t>(low) + 1;
    return static_cast<int32_t>(static_cast<uint32_t>(low) + engine_() % range);
  }
  Items items(int32_t count) {
    Items items(static_cast<size_t>(count));
    for (int8_t& item : items) item = static_cast<int8_t>(between(INT8_MIN, INT8_MAX));
    return items;
  }
  Words words(int32_t count, int32_t low, int32_t high) {
    Words words(static_cast<size_t>(count));
    for (int32_t& word : words) word = between(low, high);
    return words;
  }

 private:
  std::mt19937 engine_;
};

// The requantisation of sums to outputs, with an item for each channel.
struct Outputs {
  Words bias;
  Words multipliers;
  Words shifts;
  int32_t offset;
  int32_t low;
  int32_t high;

  Outputs(Random& random, int32_t channels)
      : bias(random.words(channels, -5000, 5000)),
        multipliers(random.words(channels, 1 << 30, INT32_MAX)),
        shifts(random.words(channels, -12, -4)),
        offset(random.between(-20, 20)),
        low(random.between(-128, -60)),
        high(random.between(60, 127)) {}

  int8_t of(int32_t sum, size_t channel) const {
    const int32_t scaled = requantize(sum + bias[channel], multipliers[channel], shifts[channel]);
    return static_cast<int8_t>(clamp(scaled + offset, low, high));
  }
};

struct Axis {
  int32_t input;
  int32_t kernel;
  int32_t stride;
  int32_t padding;
  int32_t dilation;
  int32_t out;

  explicit Axis(Random& random) {
    do {
      input = random.between(1, 9);
      kernel = random.between(1, 4);
      stride = random.between(1, 3);
      padding = random.between(0, 3);
      dilation = random.between(1, 3);
      out = (input + 2 * padding - dilation * (kernel - 1) - 1 + stride) / stride;
    } while (input + 2 * padding < dilation * (kernel - 1) + 1);
  }

  // The input that step `at` of the window of output `place` sees.
  int32_t seen(int32_t place, int32_t at) const { return place * stride - padding + at * dilation; }
  bool sees(int32_t place, int32_t at) const {
    return seen(place, at) >= 0 && seen(place, at) < input;
  }
};

// For each window: visit(output item, input pixel, kernel pixel), counted in pixels.
template <typename Visit>
void for_each_meeting(int32_t batches, const Axis& y, const Axis& x, const Visit& visit) {
  for (int32_t batch = 0; batch < batches; ++batch) {
    for (int32_t row = 0; row < y.out; ++row) {
      for (int32_t column = 0; column < x.out; ++column) {
        for (int32_t i = 0; i < y.kernel; ++i) {
          for (int32_t j = 0; j < x.kernel; ++j) {
            if (!y.sees(row, i) || !x.sees(column, j)) continue;
            visit((batch * y.out + row) * x.out + column,
                  (batch * y.input + y.seen(row, i)) * x.input + x.seen(column, j),
                  i * x.kernel + j);
          }
        }
      }
    }
  }
}

Items outputs_of(const Words& sums, const Outputs& outputs) {
  Items items;
  for (size_t i = 0; i < sums.size(); ++i) {
    items.push_back(outputs.of(sums[i], i % outputs.bias.size()));
  }
  return items;
}

Call convolution(const char* op, const Sizes& input, const Items& items, const Sizes& weight,
                 const Items& weights, const Outputs& outputs, const Axis& y, const Axis& x,
                 const std::vector<int64_t>& depth_multiplier, int32_t input_offset,
                 const Sizes& out) {
  const Sizes channels = {out[3]};
  return Call(op)
      .int8(input, items)
      .int8(weight, weights)
      .int32(channels, outputs.bias)
      .list({y.stride, x.stride})
      .list({y.padding, x.padding})
      .list({y.dilation, x.dilation})
      .integers(depth_multiplier)
      .integers({input_offset, outputs.offset})
      .int32(channels, outputs.multipliers)
      .int32(channels, outputs.shifts)
      .integers({outputs.low, outputs.high})
      .int8({0}, {})
      .out(out);
}

TEST_CASE("convolutions of random shapes, in groups and whole") {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const Axis y(random);
    const Axis x(random);
    const int32_t batches = random.between(1, 2);
    const int32_t groups = random.between(1, 3);
    const int32_t depth = random.between(1, 37);
    const int32_t outs = random.between(1, 22);
    const int32_t channels = groups * outs;
    const int32_t input_offset = random.between(-128, 128);
    const Items items = random.items(batches * y.input * x.input * groups * depth);
    const Items weights = random.items(channels * y.kernel * x.kernel * depth);
    const Outputs outputs(random, channels);
    Words sums(static_cast<size_t>(batches * y.out * x.out * channels));
    for_each_meeting(batches, y, x, [&](int32_t to, int32_t from, int32_t kernel) {
      for (int32_t channel = 0; channel < channels; ++channel) {
        const int32_t first = (from * groups + channel / outs) * depth;
        const int32_t filter = (channel * y.kernel * x.kernel + kernel) * depth;
        for (int32_t i = 0; i < depth; ++i) {
          at(sums, to * channels + channel) +=
              (at(items, first + i) + input_offset) * at(weights, filter + i);
        }
      }
    });
    Call call = convolution("cortex_m::quantized_conv2d_nhwc.out",
                            {batches, y.input, x.input, groups * depth}, items,
                            {channels, y.kernel, x.kernel, depth}, weights, outputs, y, x, {},
                            input_offset, {batches, y.out, x.out, channels});
    REQUIRE(call.run() == "");
    CHECK(call.result() == outputs_of(sums, outputs));
  }
}

TEST_CASE("depthwise convolutions of random shapes") {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const Axis y(random);
    const Axis x(random);
    const int32_t inputs = random.between(1, 40);
    const int32_t multiplier = random.between(0, 1) == 0 ? 1 : random.between(2, 19);
    const int32_t channels = inputs * multiplier;
    const int32_t input_offset = random.between(-128, 128);
    const Items items = random.items(y.input * x.input * inputs);
    const Items weights = random.items(y.kernel * x.kernel * channels);
    const Outputs outputs(random, channels);
    Words sums(static_cast<size_t>(y.out * x.out * channels));
    for_each_meeting(1, y, x, [&](int32_t to, int32_t from, int32_t kernel) {
      for (int32_t channel = 0; channel < channels; ++channel) {
        at(sums, to * channels + channel) +=
            (at(items, from * inputs + channel / multiplier) + input_offset) *
            at(weights, kernel * channels + channel);
      }
    });
    Call call =
        convolution("cortex_m::quantized_depthwise_conv2d_nhwc.out", {1, y.input, x.input, inputs},
                    items, {1, y.kernel, x.kernel, channels}, weights, outputs, y, x, {multiplier},
                    input_offset, {1, y.out, x.out, channels});
    REQUIRE(call.run() == "");
    CHECK(call.result() == outputs_of(sums, outputs));
  }
}

TEST_CASE("fully connected layers of random shapes") {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const int32_t batches = random.between(1, 4);
    const int32_t inputs = random.between(1, 70);
    const int32_t features = random.between(1, 37);
    const int32_t input_offset = random.between(-128, 128);
    const int32_t filter_offset = random.between(0, 1) == 0 ? 0 : random.between(-128, 128);
    const Items items = random.items(batches * inputs);
    const Items weights = random.items(features * inputs);
    Outputs outputs(random, features);
    for (int32_t& multiplier : outputs.multipliers) multiplier = outputs.multipliers[0];
    for (int32_t& shift : outputs.shifts) shift = outputs.shifts[0];
    Words sums(static_cast<size_t>(batches * features));
    for (int32_t i = 0; i < batches * features * inputs; ++i) {
      const int32_t to = i / inputs;
      const int32_t from = to / features * inputs + i % inputs;
      const int32_t weight = to % features * inputs + i % inputs;
      at(sums, to) += (at(items, from) + input_offset) * (at(weights, weight) + filter_offset);
    }
    Call call("cortex_m::quantized_linear.out");
    call.int8({batches, inputs}, items)
        .int8({features, inputs}, weights)
        .int32({features}, outputs.bias)
        .none()
        .integers({input_offset, filter_offset, outputs.offset})
        .list({outputs.multipliers[0]})
        .list({outputs.shifts[0]})
        .integers({outputs.high, outputs.low})
        .out({batches, features});
    REQUIRE(call.run() == "");
    CHECK(call.result() == outputs_of(sums, outputs));
  }
}

TEST_CASE("strides and dilations that no image needs") {
  // One pixel of many channels: steps to a second one would leave int32.
  constexpr int32_t kChannels = 40000;
  const Items ones(kChannels, 1);
  Call call("cortex_m::quantized_conv2d_nhwc.out");
  call.int8({1, 1, 1, kChannels}, ones)
      .int8({1, 1, 1, kChannels}, ones)
      .none()
      .list({65535, 65535})
      .list({65535, 65535})
      .list({65535, 65535})
      .integers({0, 0})
      .int32({1}, {1 << 30})
      .int32({1}, {-8})
      .integers({-128, 127})
      .int8({0}, {})
      .out({1, 3, 3, 1});
  REQUIRE(call.run() == "");
  CHECK(call.result() == Items{0, 0, 0, 0, 78, 0, 0, 0, 0});
}

}  // namespace
}  // namespace hil::builtin
