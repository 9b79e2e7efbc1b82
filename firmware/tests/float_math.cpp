// The own functions of floats against the C library's in double, all over the range of floats.
#include "runtime/builtin/kernels/float_math.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>

namespace hil::builtin {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

float of_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// The error of a float in units in the last place.
double error_of(float found, double right) {
  const float nearest = static_cast<float>(right);
  if (std::isnan(right)) return std::isnan(found) ? 0 : 1e9;
  if (std::isinf(nearest) || std::isinf(found)) return found == nearest ? 0 : 1e9;
  const double up = std::nextafter(std::fabs(nearest), kInfinity);
  return std::fabs(found - right) / (up - std::fabs(nearest));
}

template <typename Own, typename Right>
double worst_of(const Own& own, const Right& right) {
  constexpr uint32_t kStep = 9973;  // a prime, so that mantissas vary
  double worst = 0;
  for (uint64_t bits = 0; bits <= UINT32_MAX; bits += kStep) {
    const float x = of_bits(static_cast<uint32_t>(bits));
    const double error = error_of(own(x), right(double{x}));
    if (error > worst) worst = error;
  }
  return worst;
}

TEST_CASE("functions of floats are within 0.51 units in the last place") {
  CHECK(worst_of(math::exp, [](double x) { return std::exp(x); }) <= 0.51);
  CHECK(worst_of(math::expm1, [](double x) { return std::expm1(x); }) <= 0.51);
  CHECK(worst_of(math::log, [](double x) { return std::log(x); }) <= 0.51);
  CHECK(worst_of(math::log1p, [](double x) { return std::log1p(x); }) <= 0.51);
  CHECK(worst_of(math::tanh, [](double x) { return std::tanh(x); }) <= 0.51);
  CHECK(worst_of(math::sin, [](double x) { return std::sin(x); }) <= 0.51);
  CHECK(worst_of(math::cos, [](double x) { return std::cos(x); }) <= 0.51);
  for (const float exponent : {0.3f, -0.3f, 2.0f, 3.0f, -5.0f, 0.5f, 17.25f}) {
    CAPTURE(exponent);
    const auto own = [=](float x) { return math::pow(x, exponent); };
    CHECK(worst_of(own, [=](double x) { return std::pow(x, double{exponent}); }) <= 0.51);
  }
}

TEST_CASE("sine and cosine near a right angle's multiples, and of zeros and infinities") {
  // Of all floats, 0x1.6ac5b2p+62 is among the nearest to such a multiple.
  for (const float x : {0.7853982f, 1.5707964f, 3.1415927f, 6.2831855f, 0x1.6ac5b2p+62f,
                        0x1.fffffep+127f, 0.25f, 0.24999999f}) {
    for (const float one : {x, -x}) {
      CAPTURE(one);
      CHECK(error_of(math::sin(one), std::sin(double{one})) <= 0.51);
      CHECK(error_of(math::cos(one), std::cos(double{one})) <= 0.51);
    }
  }
  CHECK(std::signbit(math::sin(-0.0f)));
  CHECK(math::cos(-0.0f) == 1);
  CHECK(std::isnan(math::sin(-kInfinity)));
  CHECK(std::isnan(math::cos(kInfinity)));
}

TEST_CASE("erf is right to 1e-14") {
  for (int i = -5109; i <= 5109; ++i) {
    const double x = i * 0.00137;
    CAPTURE(x);
    CHECK(std::fabs(math::erf(x) - std::erf(x)) <= 1e-14);
  }
  CHECK(std::isnan(math::erf(kNan)));
  CHECK(math::erf(kInfinity) == 1);
}

TEST_CASE("powers at the ends are those of C") {
  const float all[] = {0.0f,  -0.0f, 1.0f,  -1.0f,       0.5f,      -2.0f,      3.0f,
                       -3.0f, 2.5f,  1e30f, 16777217.0f, kInfinity, -kInfinity, kNan};
  for (const float base : all) {
    for (const float exponent : all) {
      CAPTURE(base);
      CAPTURE(exponent);
      const float right = std::pow(base, exponent);
      const float found = math::pow(base, exponent);
      CHECK(error_of(found, right) <= 1);
      if (!std::isnan(right)) CHECK(std::signbit(found) == std::signbit(right));
    }
  }
}

}  // namespace
}  // namespace hil::builtin
