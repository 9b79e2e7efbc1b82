// Copies of a part, and over what is there: bounds that programs of torch's do not have.
#include <doctest/doctest.h>

#include <limits>

#include "tests/call.h"

namespace hil::builtin {
namespace {

const std::vector<int8_t> kSix = {0, 1, 2, 3, 4, 5};

// Copies of six items those from `start` to `end`, by `step`.
Call slice(int64_t start, int64_t end, int64_t step, int32_t count) {
  return Call("aten::slice_copy.Tensor_out")
      .int8({6}, kSix)
      .integers({0, start, end, step})
      .out({count});
}

TEST_CASE("a slice's bounds count from the end if negative, and are cut to the dimension") {
  constexpr int64_t kFar = std::numeric_limits<int64_t>::max();
  Call last = slice(-2, kFar, 1, 2);
  REQUIRE(last.run() == "");
  CHECK(last.result() == std::vector<int8_t>{4, 5});
  Call first = slice(std::numeric_limits<int64_t>::min(), -4, 1, 2);
  REQUIRE(first.run() == "");
  CHECK(first.result() == std::vector<int8_t>{0, 1});
  Call apart = slice(1, kFar, 2, 3);
  REQUIRE(apart.run() == "");
  CHECK(apart.result() == std::vector<int8_t>{1, 3, 5});
  Call far = slice(5, 6, INT32_MAX, 1);
  REQUIRE(far.run() == "");
  CHECK(far.result() == std::vector<int8_t>{5});
  CHECK(slice(4, 2, 1, 0).run() == "");
  CHECK(slice(9, kFar, 1, 0).run() == "");
}

TEST_CASE("a slice without bounds is the whole dimension") {
  Call call = Call("aten::slice_copy.Tensor_out").int8({2, 3}, kSix).integer(1);
  call.none().none().integer(2).out({2, 2});
  REQUIRE(call.run() == "");
  CHECK(call.result() == std::vector<int8_t>{0, 2, 3, 5});
}

TEST_CASE("a slice of another size, step or dimension is refused") {
  CHECK(slice(0, 3, 1, 2).run().find("3 items of dimension 0") != std::string::npos);
  CHECK(slice(0, 6, 0, 6).run().find("step") != std::string::npos);
  CHECK(slice(0, 6, -1, 6).run().find("step") != std::string::npos);
  Call other = Call("aten::slice_copy.Tensor_out").int8({2, 3}, kSix).integers({1, 0, 2, 1});
  CHECK(other.out({3, 2}).run() != "");
  Call rank = Call("aten::slice_copy.Tensor_out").int8({2, 3}, kSix).integers({1, 0, 2, 1});
  CHECK(rank.out({4}).run() != "");
}

TEST_CASE("a copy in place takes what fits, and nothing else") {
  Call good = Call("aten::copy_").out({2, 3}).int8({2, 3}, kSix).boolean(false);
  CHECK(good.run() == "");
  CHECK(Call("aten::copy_").out({3, 2}).int8({2, 3}, kSix).boolean(false).run() != "");
  CHECK(Call("aten::copy_").out({2, 3}).int8({2, 3}, kSix).boolean(true).run() != "");
  CHECK(Call("aten::copy_")
            .int8({2, 3}, kSix)
            .int8({2, 3}, kSix)
            .boolean(false)
            .run()
            .find("constant") != std::string::npos);
}

}  // namespace
}  // namespace hil::builtin
