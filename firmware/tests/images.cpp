// Convolutions, pooling, padding and copies: windows at and beyond the edges of an image.
#include <doctest/doctest.h>

#include "tests/call.h"

namespace hil::builtin {
namespace {

struct Geometry {
  Sizes input;   // n, h, w, c
  Sizes weight;  // out, h, w, in
  Sizes out;     // n, h, w, c
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t dilation = 1;
};

size_t items(const Sizes& sizes) {
  size_t count = 1;
  for (const int32_t size : sizes) count *= static_cast<size_t>(size);
  return count;
}

// All of the input 1, all weights 2, a bias of 3; scaled by one.
Call convolve(const Geometry& at, int64_t input_offset = 0) {
  const size_t channels = static_cast<size_t>(at.out[3]);
  const Sizes per_channel = {at.out[3]};
  return Call("cortex_m::quantized_conv2d_nhwc.out")
      .int8(at.input, std::vector<int8_t>(items(at.input), 1))
      .int8(at.weight, std::vector<int8_t>(items(at.weight), 2))
      .int32(per_channel, std::vector<int32_t>(channels, 3))
      .list({at.stride, at.stride})
      .list({at.padding, at.padding})
      .list({at.dilation, at.dilation})
      .integers({input_offset, 0})
      .int32(per_channel, std::vector<int32_t>(channels, 1 << 30))
      .int32(per_channel, std::vector<int32_t>(channels, 1))
      .integers({-128, 127})
      .int8({0}, {})
      .out(at.out);
}

TEST_CASE("a window that lies in the padding alone gives the bias") {
  // Padding of 2 around one pixel, a kernel of 1 x 1: only the middle sees it.
  Call call = convolve({{1, 1, 1, 1}, {1, 1, 1, 1}, {1, 5, 5, 1}, 1, 2});
  REQUIRE(call.run() == "");
  std::vector<int8_t> expected(25, 3);
  expected[12] = 1 * 2 + 3;
  CHECK(call.result() == expected);
}

TEST_CASE("a kernel larger than its image, in its padding") {
  Call call = convolve({{1, 1, 1, 2}, {1, 5, 5, 2}, {1, 1, 1, 1}, 1, 2});
  REQUIRE(call.run() == "");
  CHECK(call.result() == std::vector<int8_t>{2 * 2 + 3});
  CHECK(convolve({{1, 1, 1, 1}, {1, 3, 3, 1}, {1, 1, 1, 1}}).run().find("larger than the input") !=
        std::string::npos);
}

TEST_CASE("a dilated kernel that reaches over the image") {
  Call call = convolve({{1, 3, 3, 1}, {1, 2, 2, 1}, {1, 1, 1, 1}, 1, 0, 2});
  REQUIRE(call.run() == "");
  CHECK(call.result() == std::vector<int8_t>{4 * 2 + 3});
}

TEST_CASE("a padding counts as the zero point, not as zero") {
  // With an input offset of 5 each pixel counts 6 and the padding nothing.
  Call call = convolve({{1, 1, 1, 1}, {1, 3, 3, 1}, {1, 1, 1, 1}, 1, 1}, 5);
  REQUIRE(call.run() == "");
  CHECK(call.result() == std::vector<int8_t>{6 * 2 + 3});
}

TEST_CASE("sums saturate") {
  Call call = convolve({{1, 8, 8, 4}, {2, 8, 8, 4}, {1, 1, 1, 2}});
  REQUIRE(call.run() == "");
  CHECK(call.result() == std::vector<int8_t>{127, 127});
}

TEST_CASE("images of no batch give nothing, without pixels or channels they are refused") {
  CHECK(convolve({{0, 2, 2, 1}, {1, 1, 1, 1}, {0, 2, 2, 1}}).run() == "");
  CHECK(convolve({{1, 0, 2, 1}, {1, 1, 1, 1}, {1, 0, 2, 1}}).run() != "");
  CHECK(convolve({{1, 2, 2, 0}, {1, 1, 1, 0}, {1, 2, 2, 1}}).run() != "");
  CHECK(convolve({{1, 2, 2, 1}, {1, 0, 0, 1}, {1, 3, 3, 1}}).run() != "");
}

TEST_CASE("numbers that leave int32 are refused before they do") {
  CHECK(convolve({{1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}, 65536}).run().find("stride item 0") !=
        std::string::npos);
  CHECK(convolve({{1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}, 0}).run() != "");
  CHECK(convolve({{1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}, 1, -1}).run() != "");
}

Call average(const Sizes& input, const std::vector<int8_t>& values, int64_t kernel, int64_t padding,
             const Sizes& out) {
  return Call("cortex_m::quantized_avg_pool2d_nhwc.out")
      .int8(input, values)
      .list({kernel, kernel})
      .list({kernel, kernel})
      .list({padding, padding})
      .integers({0, 0, 0})
      .int8({0}, {})
      .out(out);
}

TEST_CASE("means are rounded away from zero, and count what lies in the image") {
  Call tie = average({1, 2, 2, 1}, {1, 2, 1, 2}, 2, 0, {1, 1, 1, 1});
  REQUIRE(tie.run() == "");
  CHECK(tie.result()[0] == 2);
  Call negative = average({1, 2, 2, 1}, {-1, -2, -1, -2}, 2, 0, {1, 1, 1, 1});
  REQUIRE(negative.run() == "");
  CHECK(negative.result()[0] == -2);
  Call corner = average({1, 2, 2, 1}, {8, 1, 1, 1}, 2, 1, {1, 2, 2, 1});
  REQUIRE(corner.run() == "");
  CHECK(corner.result() == std::vector<int8_t>{8, 1, 1, 1});
  CHECK(average({1, 2, 2, 1}, {0, 0, 0, 0}, 2, 2, {1, 3, 3, 1}).run().find("half of kernel_size") !=
        std::string::npos);
}

TEST_CASE("pad: nothing, all around, and around nothing") {
  const auto pad = [](const Sizes& input, const std::vector<int8_t>& values, int64_t around,
                      const Sizes& out) {
    Call call("cortex_m::pad.out");
    call.int8(input, values)
        .list({0, 0, around, around})
        .list({0, 0, around, around})
        .integer(-128)
        .out(out);
    REQUIRE(call.run() == "");
    return call.result();
  };
  CHECK(pad({1, 2}, {1, 2}, 0, {1, 2}) == std::vector<int8_t>{1, 2});
  CHECK(pad({1, 1}, {1}, 1, {3, 3}) ==
        std::vector<int8_t>{-128, -128, -128, -128, 1, -128, -128, -128, -128});
  CHECK(pad({0, 1}, {}, 1, {2, 3}) == std::vector<int8_t>(6, -128));
}

TEST_CASE("concatenation takes tensors without items") {
  Call call("aten::cat.out");
  call.tensors({{{2, 0}, {}}, {{2, 1}, {1, 2}}}).integer(-1).out({2, 1});
  REQUIRE(call.run() == "");
  CHECK(call.result() == std::vector<int8_t>{1, 2});
}

}  // namespace
}  // namespace hil::builtin
