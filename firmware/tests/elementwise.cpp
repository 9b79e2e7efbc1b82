// Operators item by item, at the ends of their ranges and on tensors without items.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "tests/call.h"

namespace hil::builtin {
namespace {

constexpr int64_t kOne = 1 << 30;  // with a shift of 1: a factor of one

Call add(const Sizes& sizes, const std::vector<int8_t>& self, const std::vector<int8_t>& other,
         int64_t output_shift) {
  return Call("cortex_m::quantized_add.out")
      .int8(sizes, self)
      .integers({0, kOne, 1})
      .int8(sizes, other)
      .integers({0, kOne, 1})
      .integers({0, kOne, output_shift, -128, 127})
      .out(sizes);
}

TEST_CASE("sums saturate at both ends") {
  Call call = add({4}, {127, -128, 127, 1}, {127, -128, -128, 1}, 1 - 20);
  REQUIRE(call.run() == "");
  CHECK(call.result() == std::vector<int8_t>{127, -128, -1, 2});
}

TEST_CASE("tensors without items are added, and nothing is written") {
  CHECK(add({0}, {}, {}, -19).run() == "");
  CHECK(add({2, 0, 3}, {}, {}, -19).run() == "");
}

TEST_CASE("a product of the widest zero points stays in int32, and saturates") {
  Call call("cortex_m::quantized_mul.out");
  call.int8({2}, {-128, 127})
      .integer(32639)
      .int8({2}, {-128, -128})
      .integer(32639)
      .integers({0, kOne, 1})
      .out({2});
  REQUIRE(call.run() == "");
  CHECK(call.result() == std::vector<int8_t>{127, 127});
  Call beyond("cortex_m::quantized_mul.out");
  beyond.int8({1}, {0}).integer(32640).int8({1}, {0}).integers({70000, 0, kOne, 1}).out({1});
  CHECK(beyond.run().find("zero points of 32640 and 70000: a product can leave int32") !=
        std::string::npos);
}

TEST_CASE("a factor may have a zero point beyond 16 bits where CMSIS-NN has 32 for it") {
  Call call("cortex_m::quantized_mul.out");
  call.int8({2}, {-128, 127})
      .integer(0)
      .int8({2}, {1, -1})
      .integers({-111567, 0, 1 << 30, -17})  // a half, and 17 bits less
      .out({2});
  REQUIRE(call.run() == "");
  CHECK(call.result() == std::vector<int8_t>{-54, 54});
}

TEST_CASE("a quotient by zero is zero, and ties are rounded away from it") {
  Call call("cortex_m::quantized_div.out");
  call.int8({5}, {5, 0, 5, -5, -128})
      .integer(0)
      .int8({5}, {0, 0, 2, 2, 1})
      .integers({0, 3})
      .real(1.0)
      .out({5});
  REQUIRE(call.run() == "");
  CHECK(call.result() == std::vector<int8_t>{3, 3, 6, 0, -125});
}

Call quantize(const std::vector<float>& items, double scale) {
  const Sizes sizes = {static_cast<int32_t>(items.size())};
  return Call("cortex_m::quantize_per_tensor.out")
      .tensor(DType::kFloat32, sizes, items)
      .real(scale)
      .integers({-3, -128, 127, static_cast<int64_t>(DType::kInt8)})
      .out(sizes);
}

TEST_CASE("quantising takes ties to even, NaN to the zero point, and saturates at infinity") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Call call = quantize({0.5f, 1.5f, -0.5f, -1.5f, NAN, kInfinity, -kInfinity, 3e38f}, 1.0);
  REQUIRE(call.run() == "");
  CHECK(call.result() == std::vector<int8_t>{-3, -1, -3, -5, -3, 127, -128, 127});
  CHECK(quantize({1.0f}, 0.0).run().find("scale is not a positive float") != std::string::npos);
  CHECK(quantize({1.0f}, NAN).run() != "");
  CHECK(quantize({}, 1.0).run() == "");
}

TEST_CASE("the smaller operand of a minimum is one item, or one row") {
  Call by_scalar("cortex_m::minimum.out");
  by_scalar.int8({3}, {-128, 0, 127}).int8({1}, {5}).out({3});
  REQUIRE(by_scalar.run() == "");
  CHECK(by_scalar.result() == std::vector<int8_t>{-128, 0, 5});
  Call rows("cortex_m::maximum.out");
  rows.int8({2, 1}, {-1, 1}).int8({1, 2}, {0, -128}).out({2, 2});
  REQUIRE(rows.run() == "");
  CHECK(rows.result() == std::vector<int8_t>{0, -1, 1, 1});
  Call five("cortex_m::minimum.out");
  five.int8({1, 1, 1, 1, 2}, {1, 2}).int8({1, 1, 1, 1, 1}, {0}).out({1, 1, 1, 1, 2});
  CHECK(five.run() == "");  // by one item: any rank
}

TEST_CASE("clamp: high wins where the bounds cross, None is no bound, NaN stays") {
  const std::vector<float> items = {-1.0f, 1.0f, NAN};
  Call crossed("aten::clamp.out");
  crossed.tensor(DType::kFloat32, {3}, items).real(2).real(-2).out({3}, DType::kFloat32);
  REQUIRE(crossed.run() == "");
  CHECK(crossed.result<float>()[0] == -2.0f);
  CHECK(crossed.result<float>()[1] == -2.0f);
  CHECK(std::isnan(crossed.result<float>()[2]));
  Call open("aten::clamp.out");
  open.int8({2}, {-128, 127}).none().none().out({2});
  REQUIRE(open.run() == "");
  CHECK(open.result() == std::vector<int8_t>{-128, 127});
}

TEST_CASE("full of int8") {
  Call call("aten::full.out");
  call.list({2}).integer(-7).out({2});
  REQUIRE(call.run() == "");
  CHECK(call.result() == std::vector<int8_t>{-7, -7});
}

TEST_CASE("an out that shares memory with an input is refused") {
  Call call("cortex_m::maximum.out");
  call.int8({2}, {1, 2}).int8({2}, {1, 2}).out_of_first({2});
  CHECK(call.run().find("share memory") != std::string::npos);
}

}  // namespace
}  // namespace hil::builtin
