// Softmax over the last dimension: the fixed-point arithmetic of CMSIS-NN's arm_softmax_s8.
//
// Qm.n below is a number with m bits before and n bits after the binary point, in an int32.
#include "runtime/builtin/kernel.h"
#include "runtime/builtin/kernels/requantize.h"

namespace hil::builtin {
namespace {

constexpr int32_t kAccumulatorBits = 12;  // of the sum's integer part: Q12.19
constexpr int32_t kOutputZeroPoint = -128;
// The largest shift, of inputs that span 4096 or more: diff_min is 0, and only the largest items
// count.
constexpr int32_t kMaxShift = 31;

struct Softmax {
  int32_t multiplier;
  int32_t shift;
  int32_t diff_min;
};

int32_t shift_left(int32_t value, int32_t bits) {
  return static_cast<int32_t>(static_cast<uint32_t>(value) << bits);
}

int32_t saturating_multiply(int32_t a, int32_t b) {
  if (a == INT32_MIN && b == INT32_MIN) return INT32_MAX;
  return doubling_high_multiply(a, b);
}

int32_t saturating_shift_left(int32_t value, int32_t bits) {
  const int32_t limit = (1 << (31 - bits)) - 1;
  if (value > limit) return INT32_MAX;
  if (value < -limit) return INT32_MIN;
  return shift_left(value, bits);
}

// As MVE's VRSHL, which is the one of CMSIS-NN's forms that defines shifts of more than 31 bits.
int32_t divide(int32_t dividend, int32_t exponent) {
  return exponent > 31 ? 0 : divide_by_power_of_two(dividend, exponent);
}

// e^x for x in Q5.26, not positive; the result in Q0.31.
int32_t exp_of_negative(int32_t x) {
  constexpr int32_t kQuarter = 1 << 24;
  constexpr int32_t kEighth = 1 << 28;               // in Q0.31
  constexpr int32_t kExpOfMinusEighth = 1895147668;  // e^-1/8
  constexpr int32_t kThird = 715827883;
  // e^-1/4, e^-1/2, e^-1, ..., e^-16
  constexpr int32_t kFactors[] = {1672461947, 1302514674, 790015084, 290630308,
                                  39332535,   720401,     242};
  if (x == 0) return INT32_MAX;
  const int32_t part = (x & (kQuarter - 1)) - kQuarter;  // in [-1/4, 0)
  const uint32_t rest = static_cast<uint32_t>(part) - static_cast<uint32_t>(x);

  // Taylor's polynomial around -1/8, to the fourth degree.
  const int32_t t = wrapping_add(shift_left(part, 5), kEighth);
  const int32_t t2 = saturating_multiply(t, t);
  const int32_t t3 = saturating_multiply(t2, t);
  const int32_t t4 = saturating_multiply(t2, t2);
  const int32_t high = saturating_multiply(divide(t4, 2) + t3, kThird) + t2;
  int32_t result =
      wrapping_add(kExpOfMinusEighth, saturating_multiply(kExpOfMinusEighth, t + divide(high, 1)));
  for (uint32_t i = 0; i < sizeof(kFactors) / sizeof(kFactors[0]); ++i) {
    if ((rest >> (24 + i) & 1) != 0) result = saturating_multiply(result, kFactors[i]);
  }
  return result;
}

// 1 / (1 + x) for x in Q0.31, 0 to 1; the result in Q0.31. Three steps of Newton's method.
int32_t reciprocal_of_one_plus(int32_t x) {
  constexpr int32_t k48Over17 = 1515870810;  // in Q2.29, as what follows
  constexpr int32_t kMinus32Over17 = -1010580540;
  constexpr int32_t kOne = 1 << 29;
  const int64_t sum = int64_t{x} + INT32_MAX;
  const int32_t half = static_cast<int32_t>((sum + (sum >= 0 ? 1 : -1)) / 2);
  int32_t y = wrapping_add(k48Over17, saturating_multiply(half, kMinus32Over17));
  for (int step = 0; step < 3; ++step) {
    const int32_t error = wrapping_add(kOne, -saturating_multiply(half, y));
    y = wrapping_add(y, saturating_shift_left(saturating_multiply(y, error), 2));
  }
  return saturating_shift_left(y, 1);
}

// 0 to 31; `value` is not 0.
int32_t leading_zeros(uint32_t value) { return __builtin_clz(value); }

int32_t exp_of(const Softmax& softmax, int32_t diff) {
  const int32_t scaled = saturating_multiply(shift_left(diff, softmax.shift), softmax.multiplier);
  return exp_of_negative(scaled);
}

int32_t largest_of(const int8_t* row, uint32_t size) {
  int8_t largest = row[0];
  for (uint32_t i = 1; i < size; ++i) largest = row[i] > largest ? row[i] : largest;
  return largest;
}

int64_t sum_of_exp(const Softmax& softmax, const int8_t* row, uint32_t size, int32_t largest) {
  int64_t sum = 0;
  for (uint32_t i = 0; i < size; ++i) {
    const int32_t diff = row[i] - largest;
    if (diff >= softmax.diff_min) sum += divide(exp_of(softmax, diff), kAccumulatorBits);
  }
  return sum;
}

// `sum` is the row's, positive.
void compute_row(const Softmax& softmax, const int8_t* row, uint32_t size, int32_t largest,
                 uint32_t sum, int8_t* out) {
  const int32_t headroom = leading_zeros(sum);
  // The sum's digits after its first one.
  const int32_t fraction = static_cast<int32_t>((sum << headroom) - (uint32_t{1} << 31));
  const int32_t scale = reciprocal_of_one_plus(fraction);
  const int32_t bits_over_unit = kAccumulatorBits - headroom + 23;
  for (uint32_t i = 0; i < size; ++i) {
    const int32_t diff = row[i] - largest;
    int32_t result = kOutputZeroPoint;
    if (diff >= softmax.diff_min) {
      const int32_t product = saturating_multiply(scale, exp_of(softmax, diff));
      result = wrapping_add(divide(product, bits_over_unit), kOutputZeroPoint);
    }
    out[i] = static_cast<int8_t>(clamp(result, INT8_MIN, INT8_MAX));
  }
}

bool check(KernelContext& ctx, const Tensor& input, int64_t dim, const Tensor& out) {
  return ctx.require(input.rank >= 1 && (dim == -1 || dim == input.rank - 1), "dim is ", dim,
                     ", input is ", input, ": CMSIS-NN has softmax over the last dimension only") &&
         ctx.require(same_shape(input, out), "input is ", input, ", out is ", out,
                     ": the shapes differ") &&
         ctx.require(is_row_major(input) && is_row_major(out),
                     "input or out is not contiguous: the last dimension must be the innermost in "
                     "memory") &&
         ctx.require_disjoint(out, input, "input");
}

}  // namespace

// cortex_m::softmax.out(Tensor input, int dim, int input_zero_point, int output_zero_point,
//     int input_multiplier, int input_shift, int diff_min, *, Tensor(a!) out)
void softmax(KernelContext& ctx) {
  const Tensor& input = ctx.tensor("input", DType::kInt8);
  const int64_t dim = ctx.integer("dim");
  ctx.integer("input_zero_point", INT8_MIN, INT8_MAX);  // differences do not see it
  ctx.integer("output_zero_point", kOutputZeroPoint, kOutputZeroPoint);
  const Softmax softmax = {ctx.integer("input_multiplier", 0, INT32_MAX),
                           ctx.integer("input_shift", 0, kMaxShift),
                           ctx.integer("diff_min", INT32_MIN, 0)};
  const Tensor& out = ctx.out(DType::kInt8);
  if (!ctx.done() || !check(ctx, input, dim, out) || input.numel == 0) return;
  const uint32_t size = input.size(-1);
  const int8_t* row = input.as<int8_t>();
  int8_t* to = out.as<int8_t>();
  for (uint32_t at = 0; at < input.numel; at += size, row += size, to += size) {
    const int32_t largest = largest_of(row, size);
    const int64_t sum = sum_of_exp(softmax, row, size, largest);
    if (!ctx.require(sum > 0 && sum <= INT32_MAX, "the sum of a row of ", size, " exponentials is ",
                     sum, ", beyond CMSIS-NN's ", kAccumulatorBits, " accumulator bits")) {
      return;
    }
    compute_row(softmax, row, size, largest, static_cast<uint32_t>(sum), to);
  }
}

}  // namespace hil::builtin
