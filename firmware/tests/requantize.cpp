// Fixed-point scaling, held against its definition in real numbers.
#include "runtime/builtin/kernels/requantize.h"

#include <doctest/doctest.h>

#include <cmath>
#include <initializer_list>

namespace hil::builtin {
namespace {

constexpr int32_t kValues[] = {INT32_MIN, INT32_MIN + 1, -(1 << 30), -65537,   -3, -2, -1, 0, 1, 2,
                               3,         65537,         1 << 30,    INT32_MAX};

// Exact: all these products and quotients fit in the 64 bits of x86's long double.
int64_t rounded_up(int32_t a, int32_t b) {
  return static_cast<int64_t>(std::floor(static_cast<long double>(a) * b / 2147483648.0L + 0.5L));
}

int64_t rounded_away(int32_t dividend, int32_t exponent) {
  return static_cast<int64_t>(
      std::round(std::ldexp(static_cast<long double>(dividend), -exponent)));
}

TEST_CASE("products are rounded upwards, and only the largest wraps") {
  for (const int32_t a : kValues) {
    for (const int32_t b : kValues) {
      CAPTURE(a);
      CAPTURE(b);
      const bool wraps = a == INT32_MIN && b == INT32_MIN;
      CHECK(doubling_high_multiply(a, b) == (wraps ? INT32_MIN : rounded_up(a, b)));
    }
  }
}

TEST_CASE("quotients are rounded away from zero, by each exponent") {
  for (const int32_t dividend : kValues) {
    for (int32_t exponent = 0; exponent <= kMaxRightShift; ++exponent) {
      CAPTURE(dividend);
      CAPTURE(exponent);
      CHECK(divide_by_power_of_two(dividend, exponent) == rounded_away(dividend, exponent));
    }
  }
}

TEST_CASE("left shifts wrap, right shifts end at 0 or 1") {
  CHECK(requantize(1, INT32_MAX, kMaxLeftShift) == 1 << 30);
  CHECK(requantize(2, INT32_MAX, kMaxLeftShift) == -INT32_MAX);  // 2^31 is INT32_MIN
  CHECK(requantize(4, INT32_MAX, kMaxLeftShift) == 0);
  CHECK(requantize(INT32_MAX, INT32_MAX, -kMaxRightShift) == 1);
  CHECK(requantize(INT32_MIN, INT32_MAX, -kMaxRightShift) == -1);
  CHECK(requantize(1 << 29, INT32_MAX, -kMaxRightShift) == 0);
}

TEST_CASE("sums wrap as on the target") {
  CHECK(wrapping_add(INT32_MAX, 1) == INT32_MIN);
  CHECK(wrapping_multiply(INT32_MIN, -1) == INT32_MIN);
}

}  // namespace
}  // namespace hil::builtin
