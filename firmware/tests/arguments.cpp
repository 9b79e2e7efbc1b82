// Tests of how a kernel reads its arguments.
#include <doctest/doctest.h>

#include "tests/call.h"

namespace hil::builtin {
namespace {

Call activation() {
  return Call("cortex_m::quantized_activation.out")
      .int8({2}, {-128, 127})
      .int8({256}, std::vector<int8_t>(256, 7));
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("every operator says how many arguments it takes, without being given any") {
  for (size_t i = 0; i < operators().size; ++i) {
    const Operator& op = operators().data[i];
    const Arity arity = arity_of(op);
    INFO(op.name);
    CHECK(arity.least >= 2);
    CHECK(arity.most - arity.least <= 1);
  }
}

TEST_CASE("an argument that only newer schemas have may be absent") {
  const Arity arity = arity_of(*find_operator("cortex_m::quantized_avg_pool2d.out", ""));
  CHECK(arity.least == 9);
  CHECK(arity.most == 10);
}

TEST_CASE("a call with too few or too many arguments reads nothing beyond them") {
  CHECK(contains(activation().run(), "called with 2 arguments, the operator takes more"));
  CHECK(contains(activation().out({2}).integer(0).run(),
                 "called with 4 arguments, the operator takes 3"));
  CHECK(activation().out({2}).run() == "");
}

TEST_CASE("the first wrong argument is named, with its place") {
  CHECK(contains(
      Call("cortex_m::quantized_activation.out").int8({1}, {0}).int32({1}, {0}).integer(0).run(),
      "lut (argument 1) is int32[1], the operator takes int8"));
  CHECK(contains(activation().int8({2}, {0, 0}).run(), "out (argument 2) is a constant"));
}

}  // namespace
}  // namespace hil::builtin
