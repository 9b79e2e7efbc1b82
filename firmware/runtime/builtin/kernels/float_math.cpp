#include "runtime/builtin/kernels/float_math.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace hil::builtin::math {
namespace {

constexpr double kLn2 = 0.69314718055994530942;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kMantissaBits = 52;
constexpr int kBias = 1023;

// 2^k, for a k of normal numbers.
double power_of_two(int32_t k) {
  const uint64_t bits = static_cast<uint64_t>(kBias + k) << kMantissaBits;
  double power;
  std::memcpy(&power, &bits, sizeof(power));
  return power;
}

// e^x for |x| <= 700: 2^k e^r with |r| <= ln(2)/2.
double exp_of(double x) {
  constexpr double kLog2E = 1.4426950408889634074;
  const int32_t k = static_cast<int32_t>(x * kLog2E + (x < 0 ? -0.5 : 0.5));
  const double r = x - k * kLn2;
  // Taylor's polynomial; the first term left out is under 1e-14.
  double sum = 1.0;
  for (int n = 12; n > 0; --n) sum = 1.0 + sum * r / n;
  return sum * power_of_two(k);
}

// e^x - 1 for |x| <= 700, without loss where x is small.
double expm1_of(double x) {
  if (!(x > -0.4 && x < 0.4)) return exp_of(x) - 1.0;
  double sum = 1.0;
  for (int n = 14; n > 1; --n) sum = 1.0 + sum * x / n;
  return sum * x;
}

// 2 atanh(s), which is log((1 + s) / (1 - s)), for |s| <= 0.18: the terms left out are under 1e-17.
double twice_atanh(double s) {
  double sum = 0.0;
  for (int n = 21; n > 0; n -= 2) sum = sum * s * s + 1.0 / n;
  return 2.0 * s * sum;
}

// The logarithm of a positive, normal number: k ln(2) + log(m) with m from 0.7 to 1.42.
double log_of(double x) {
  uint64_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  int32_t k = static_cast<int32_t>(bits >> kMantissaBits) - kBias;
  double m = x / power_of_two(k);
  if (m > 1.42) {
    m /= 2;
    ++k;
  }
  return k * kLn2 + twice_atanh((m - 1.0) / (m + 1.0));
}

// An angle as a number of right angles, modulo 4, and a rest of at most half a right angle, in
// radians.
struct Angle {
  uint32_t quadrant;
  double rest;
};

// For a positive, finite x of at least 2^-2: x is a 24-bit integer times 2^e, and of 2/pi only
// those bits matter whose products with it are under 4. 96 of them leave an error of 2^-70, and no
// float is closer than 2^-32 to a multiple of a right angle.
Angle angle_of(float x) {
  constexpr uint32_t kTwoOverPi[] = {0,          0xA2F9836E, 0x4E441529, 0xFC2757D1,
                                     0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB};
  constexpr double kHalfPi = 1.57079632679489661923;
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  const uint64_t mantissa = (bits & 0x7FFFFF) | 0x800000;
  const uint32_t first = (bits >> 23) - 127 - 23 + 30;  // of the table's bits; 5 to 134
  const uint32_t* words = kTwoOverPi + first / 32;
  uint32_t window[3];
  for (int i = 0; i < 3; ++i) {
    const uint64_t both = uint64_t{words[i]} << 32 | words[i + 1];
    window[i] = static_cast<uint32_t>(both >> (32 - first % 32));
  }
  const uint64_t low = mantissa * window[2];
  const uint64_t product =  // in 2^-62, modulo 4
      mantissa * (uint64_t{window[0]} << 32 | window[1]) + (low >> 32);
  const uint64_t nearest = product + (uint64_t{1} << 61);
  const int64_t rest = static_cast<int64_t>(nearest & ~(uint64_t{3} << 62)) - (int64_t{1} << 61);
  const double whole = static_cast<double>(rest) + (low & UINT32_MAX) * power_of_two(-32);
  return {static_cast<uint32_t>(nearest >> 62), whole * power_of_two(-62) * kHalfPi};
}

// Taylor's polynomials, for |x| up to pi/4: the first terms left out are under 1e-15.
double sin_of(double x) {
  double sum = 1.0;
  for (int n = 14; n > 0; n -= 2) sum = 1.0 - sum * x * x / (n * (n + 1));
  return sum * x;
}

double cos_of(double x) {
  double sum = 1.0;
  for (int n = 15; n > 0; n -= 2) sum = 1.0 - sum * x * x / (n * (n + 1));
  return sum;
}

float wave_of(const Angle& angle) {
  const double magnitude = angle.quadrant % 2 == 0 ? sin_of(angle.rest) : cos_of(angle.rest);
  return static_cast<float>(angle.quadrant % 4 < 2 ? magnitude : -magnitude);
}

bool is_odd(float integer) {
  constexpr float kAllEven = 16777216.0f;  // from here on
  return std::fabs(integer) < kAllEven && static_cast<int32_t>(integer) % 2 != 0;
}

bool is_integer(float x) {
  constexpr float kAllIntegers = 8388608.0f;  // from here on
  return std::fabs(x) >= kAllIntegers || static_cast<float>(static_cast<int32_t>(x)) == x;
}

// |base|^exponent, for what is neither NaN nor 1.
double power_of_magnitude(float base, float exponent) {
  const bool grows = (base > 1) == (exponent > 0);
  if (base == 0 || std::isinf(base) || std::isinf(exponent)) return grows ? kInfinity : 0.0;
  const double power = exponent * log_of(base);
  if (power > 100) return kInfinity;  // as a float
  return power < -110 ? 0.0 : exp_of(power);
}

}  // namespace

float exp(float x) {
  constexpr float kLeast = -104.0f;  // below, the result is 0 in float
  constexpr float kMost = 89.0f;     // above, infinite
  if (!(x >= kLeast)) return std::isnan(x) ? x : 0.0f;
  return x > kMost ? std::numeric_limits<float>::infinity() : static_cast<float>(exp_of(x));
}

float expm1(float x) {
  if (x == 0 || std::isnan(x)) return x;
  if (x > 89.0f) return std::numeric_limits<float>::infinity();
  return x < -40.0f ? -1.0f : static_cast<float>(expm1_of(x));
}

float log(float x) {
  if (std::isnan(x)) return x;
  if (x < 0) return std::numeric_limits<float>::quiet_NaN();
  if (x == 0) return -std::numeric_limits<float>::infinity();
  return std::isinf(x) ? x : static_cast<float>(log_of(x));
}

float log1p(float x) {
  if (x == 0 || std::isnan(x)) return x;
  if (x <= -1) return log(x + 1);
  if (std::isinf(x)) return x;
  const bool small = x > -0.29f && x < 0.41f;
  return static_cast<float>(small ? twice_atanh(x / (2.0 + x)) : log_of(1.0 + x));
}

// (e^2x - 1) / (e^2x + 1)
double tanh_of(double x) {
  constexpr double kOne = 20.0;  // from here on it is 1 in double
  if (x == 0 || std::isnan(x)) return x;
  const double magnitude = x < 0 ? -x : x;
  const double grown = magnitude < kOne ? expm1_of(2 * magnitude) : 0.0;
  const double result = magnitude < kOne ? grown / (grown + 2.0) : 1.0;
  return x < 0 ? -result : result;
}

float tanh(float x) { return static_cast<float>(tanh_of(x)); }

// The sine, a quarter of a turn on for the cosine.
float sin(float x) {
  constexpr float kSmall = 0.25f;
  if (std::isinf(x)) return std::numeric_limits<float>::quiet_NaN();
  if (!(x >= kSmall || x <= -kSmall)) return static_cast<float>(sin_of(x));
  const float result = wave_of(angle_of(std::fabs(x)));
  return x < 0 ? -result : result;
}

float cos(float x) {
  constexpr float kSmall = 0.25f;
  if (std::isinf(x)) return std::numeric_limits<float>::quiet_NaN();
  if (!(x >= kSmall || x <= -kSmall)) return static_cast<float>(cos_of(x));
  Angle angle = angle_of(std::fabs(x));
  ++angle.quadrant;
  return wave_of(angle);
}

// 2/sqrt(pi) e^-x^2 (x + 2/3 x^3 + 4/15 x^5 + ...): terms of one sign, so nothing cancels.
double erf(double x) {
  constexpr double kOne = 6.0;  // from here on it is 1 in double
  constexpr double kTwoOverSqrtPi = 1.1283791670955125739;
  if (x == 0 || std::isnan(x)) return x;
  if (x > kOne || x < -kOne) return x < 0 ? -1.0 : 1.0;
  double term = x < 0 ? -x : x;
  double sum = 0.0;
  for (int n = 3; term > sum * 1e-17; n += 2) {
    sum += term;
    term *= 2 * x * x / n;
  }
  const double result = kTwoOverSqrtPi * exp_of(-x * x) * sum;
  return x < 0 ? -result : result;
}

float pow(float base, float exponent) {
  if (exponent == 0 || base == 1) return 1.0f;
  if (std::isnan(base) || std::isnan(exponent)) return base + exponent;
  const float magnitude = std::fabs(base);
  if (magnitude == 1 && std::isinf(exponent)) return 1.0f;
  const bool negative = std::signbit(base) && is_integer(exponent) && is_odd(exponent);
  if (base < 0 && !std::isinf(base) && !is_integer(exponent)) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  const float result =
      magnitude == 1 ? 1.0f : static_cast<float>(power_of_magnitude(magnitude, exponent));
  return negative ? -result : result;
}

}  // namespace hil::builtin::math
