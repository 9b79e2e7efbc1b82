// Operators on the last dimension: softmax and fully connected layers.
#include <doctest/doctest.h>

#include <cstdlib>
#include <limits>
#include <numeric>

#include "tests/call.h"

namespace hil::builtin {
namespace {

// A scale of 1/16: differences of 16 quanta are a factor e.
Call softmax(const Sizes& sizes, const std::vector<int8_t>& items) {
  return Call("cortex_m::softmax.out")
      .int8(sizes, items)
      .integers({-1, 0, -128, 1 << 30, 23, -248})
      .out(sizes);
}

TEST_CASE("softmax of equal inputs is uniform, whatever they are") {
  for (const int8_t value : {int8_t{-128}, int8_t{0}, int8_t{127}}) {
    Call call = softmax({1, 4}, {value, value, value, value});
    REQUIRE(call.run() == "");
    CHECK(call.result() == std::vector<int8_t>(4, 256 / 4 - 128));
  }
}

TEST_CASE("softmax of the extremes gives all to one, and saturates") {
  Call call = softmax({1, 3}, {-128, 127, -128});
  REQUIRE(call.run() == "");
  CHECK(call.result() == std::vector<int8_t>{-128, 127, -128});
}

TEST_CASE("softmax of one item is certain, and of none nothing") {
  Call one = softmax({2, 1}, {-128, 5});
  REQUIRE(one.run() == "");
  CHECK(one.result() == std::vector<int8_t>{127, 127});
  CHECK(softmax({0, 4}, {}).run() == "");
  CHECK(softmax({4, 0}, {}).run() == "");
}

TEST_CASE("softmax over more than its accumulator holds is refused") {
  CHECK(softmax({1, 4095}, std::vector<int8_t>(4095, 3)).run() == "");
  CHECK(softmax({1, 5000}, std::vector<int8_t>(5000, 3)).run().find("accumulator") !=
        std::string::npos);
}

Call scaled_softmax(int64_t multiplier, int64_t shift, int64_t diff_min,
                    const std::vector<int8_t>& items) {
  const Sizes sizes = {1, static_cast<int32_t>(items.size())};
  return Call("cortex_m::softmax.out")
      .int8(sizes, items)
      .integers({-1, 0, -128, multiplier, shift, diff_min})
      .out(sizes);
}

TEST_CASE(
    "softmax of a scale of 16 and more, ExecuTorch's last shift, knows the largest items only") {
  Call one = scaled_softmax(INT32_MAX, 31, 0, {127, -128, 126, 0});
  REQUIRE(one.run() == "");
  CHECK(one.result() == std::vector<int8_t>{127, -128, -128, -128});
  Call two = scaled_softmax(1 << 30, 31, 0, {-128, 5, 5, 4, 5, 5});
  REQUIRE(two.run() == "");
  CHECK(two.result() == std::vector<int8_t>{-128, -64, -64, -128, -64, -64});
}

TEST_CASE("softmax of differences beyond 32 bits wraps, as the instructions do") {
  Call call = scaled_softmax(1 << 30, 31, -255, {127, 126, 125, -128});
  REQUIRE(call.run() == "");
  CHECK(call.result() == std::vector<int8_t>{0, -128, 0, -128});  // -1, -3: -2^31; -2: 0
}

TEST_CASE("softmax by a shift that C does not define is refused") {
  CHECK(scaled_softmax(1 << 30, -1, 0, {1, 2}).run() ==
        "input_shift (argument 5) is -1, the operator takes 0 to 31");
  CHECK(scaled_softmax(1 << 30, 32, 0, {1, 2}).run() ==
        "input_shift (argument 5) is 32, the operator takes 0 to 31");
}

TEST_CASE("float softmax of extremes, equals and NaN") {
  const auto run = [](const std::vector<float>& items) {
    Call call("aten::_softmax.out");
    const int32_t size = static_cast<int32_t>(items.size());
    call.tensor(DType::kFloat32, {1, size}, items)
        .integer(-1)
        .boolean(false)
        .out({1, size}, DType::kFloat32);
    REQUIRE(call.run() == "");
    return call.result<float>();
  };
  CHECK(run({3e38f, 3e38f}) == std::vector<float>{0.5f, 0.5f});
  CHECK(run({-3e38f, 3e38f}) == std::vector<float>{0.0f, 1.0f});
  CHECK(run({1.0f}) == std::vector<float>{1.0f});
  const auto nan = run({std::numeric_limits<float>::quiet_NaN(), 0.0f});
  CHECK(nan[0] != nan[0]);
}

// One feature: its sum, times 2^-31 * multiplier * 2^shift.
Call linear(const std::vector<int8_t>& input, int64_t multiplier, int64_t shift, int64_t low = -128,
            int64_t high = 127) {
  const int32_t size = static_cast<int32_t>(input.size());
  return Call("cortex_m::quantized_linear.out")
      .int8({1, size}, input)
      .int8({1, size}, std::vector<int8_t>(input.size(), 127))
      .none()
      .none()
      .integers({128, 0, 0})
      .list({multiplier})
      .list({shift})
      .integers({high, low})
      .out({1, 1});
}

TEST_CASE("a sum beyond int8 saturates at the activation's limits") {
  const std::vector<int8_t> largest(64, 127);
  Call free = linear(largest, INT32_MAX, 0);
  REQUIRE(free.run() == "");
  CHECK(free.result()[0] == 127);
  Call limited = linear(largest, INT32_MAX, 0, -5, 9);
  REQUIRE(limited.run() == "");
  CHECK(limited.result()[0] == 9);
  Call negative = linear(largest, -INT32_MAX, 0, -5, 9);
  REQUIRE(negative.run() == "");
  CHECK(negative.result()[0] == -5);
}

TEST_CASE("a layer without inputs gives the offset, one of 0 batches nothing") {
  Call empty = linear({}, INT32_MAX, 0);
  REQUIRE(empty.run() == "");
  CHECK(empty.result()[0] == 0);
}

TEST_CASE("shifts and limits beyond what the arithmetic defines are refused") {
  CHECK(linear({1}, INT32_MAX, 31).run().find("requantize_shifts is 31") != std::string::npos);
  CHECK(linear({1}, INT32_MAX, -32).run().find("requantize_shifts is -32") != std::string::npos);
  CHECK(linear({1}, INT32_MAX, 30).run() == "");
  CHECK(linear({1}, int64_t{INT32_MAX} + 1, 0).run() != "");
  CHECK(linear({1}, INT32_MAX, 0, 9, -5).run().find("is above") != std::string::npos);
}

}  // namespace
}  // namespace hil::builtin
