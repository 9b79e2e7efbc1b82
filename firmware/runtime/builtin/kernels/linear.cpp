// Fully connected layers and products of matrices: the arithmetic of CMSIS-NN's
// arm_fully_connected_s8 and arm_batch_matmul_s8.
#include "runtime/builtin/kernel.h"
#include "runtime/builtin/kernels/block.h"

namespace hil::builtin {
namespace {

struct Linear {
  const Tensor& input;
  const Tensor& weights;
  const Tensor* bias;
  const Tensor* kernel_sum;
  const Tensor& out;
  int32_t input_offset;
  int32_t filter_offset;
  int32_t output_offset;
  int32_t multiplier;
  int32_t shift;
  int32_t activation_min;
  int32_t activation_max;

  uint32_t in_features() const { return input.size(-1); }
  uint32_t out_features() const { return weights.size(0); }
};

bool check_per_feature(KernelContext& ctx, const Linear& linear, const Tensor& tensor,
                       const char* name) {
  return ctx.require(tensor.numel == linear.out_features(), name, " is ", tensor,
                     ", one item for each of the ", linear.out_features(),
                     " output features needed");
}

// The contract between the AOT compiler and CMSIS-NN, which no field of the .pte tells: in the MVE
// layout bias and input offset are folded into kernel_sum; in the other one they come apart.
// CMSIS-NN's DSP and scalar code does not look at kernel_sum, so given the MVE layout it drops the
// bias without a word, and so do these: the harness's lint is there to catch it.
#if defined(HIL_ISA_MVE)

bool check_layout(KernelContext& ctx, const Linear& linear) {
  if (linear.kernel_sum == nullptr) {
    ctx.fail(
        "no kernel_sum: this is an MVE runner, and the program was lowered for a DSP or SCALAR "
        "target; lower it for this one");
    return false;
  }
  return check_per_feature(ctx, linear, *linear.kernel_sum, "kernel_sum");
}

// The initial value of a feature's sum, for any input.
int32_t start_of(const Linear& linear, uint32_t feature) {
  return linear.kernel_sum->as<int32_t>()[feature];
}

// The offset of the input: 0, since kernel_sum contains it.
int32_t offset_of(const Linear&) { return 0; }

// The summand that the filter's offset adds to all sums of an input.
int32_t share_of_filter_offset(const Linear& linear, const int8_t* input) {
  return wrapping_multiply(sum_of(input, linear.in_features()), linear.filter_offset);
}

#else

bool check_layout(KernelContext& ctx, const Linear& linear) {
  return linear.bias == nullptr || check_per_feature(ctx, linear, *linear.bias, "bias");
}

int32_t start_of(const Linear& linear, uint32_t feature) {
  return linear.bias == nullptr ? 0 : linear.bias->as<int32_t>()[feature];
}

int32_t offset_of(const Linear& linear) { return linear.input_offset; }

int32_t share_of_filter_offset(const Linear& linear, const int8_t* input) {
  const uint32_t count = linear.in_features();
  const int32_t sum = wrapping_add(
      sum_of(input, count), wrapping_multiply(static_cast<int32_t>(count), linear.input_offset));
  return wrapping_multiply(sum, linear.filter_offset);
}

#endif

bool check_shapes(KernelContext& ctx, const Linear& linear) {
  const Tensor& input = linear.input;
  const Tensor& weights = linear.weights;
  const Tensor& out = linear.out;
  return ctx.require(input.rank >= 1 && weights.rank == 2 && out.rank == input.rank, "input is ",
                     input, ", weights are ", weights, ", out is ", out,
                     ": [..., in], [out, in] and [..., out] needed") &&
         ctx.require(weights.size(1) == input.size(-1), "input is ", input, ", weights are ",
                     weights, ": the last dimensions differ") &&
         ctx.require(out.size(-1) == weights.size(0), "out is ", out, ", weights are ", weights,
                     ": the number of output features differs") &&
         ctx.require(is_row_major(input) && is_row_major(weights) && is_row_major(out),
                     "input, weights or out is not contiguous: features must be the innermost "
                     "dimension in memory");
}

bool check_batches(KernelContext& ctx, const Linear& linear) {
  for (int axis = 0; axis + 1 < linear.input.rank; ++axis) {
    if (!ctx.require(linear.input.size(axis) == linear.out.size(axis), "input is ", linear.input,
                     ", out is ", linear.out, ": dimension ", axis, " differs")) {
      return false;
    }
  }
  return true;
}

bool check(KernelContext& ctx, const Linear& linear) {
  return check_shapes(ctx, linear) && check_batches(ctx, linear) && check_layout(ctx, linear) &&
         ctx.require(linear.activation_min <= linear.activation_max, "activation_min ",
                     linear.activation_min, " is above activation_max ", linear.activation_max) &&
         ctx.require_disjoint(linear.out, linear.input, "input");
}

void compute_block(const Linear& linear, uint32_t feature, int32_t count) {
  const uint32_t in_features = linear.in_features();
  int32_t multipliers[kBlock];
  int32_t shifts[kBlock];
  Block block = {
      count, linear.weights.as<int8_t>() + feature * in_features, {}, multipliers, shifts};
  for (int32_t i = 0; i < count; ++i) {
    block.starts[i] = start_of(linear, feature + static_cast<uint32_t>(i));
    multipliers[i] = linear.multiplier;
    shifts[i] = linear.shift;
  }
  Strip strip;
  strip.pixels = 1;
  strip.from[0] = linear.input.as<int8_t>();
  strip.to[0] = linear.out.as<int8_t>() + feature;
  const uint32_t batches = linear.out.numel / linear.out_features();
  for (uint32_t batch = 0; batch < batches; ++batch) {
    sum_dots(Grid::one(), block, offset_of(linear), in_features, in_features, strip);
    if (linear.filter_offset != 0) {
      const int32_t share = share_of_filter_offset(linear, strip.from[0]);
      for (int32_t i = 0; i < count; ++i) {
        strip.sums[0][i] = wrapping_add(strip.sums[0][i], share);
      }
    }
    finish(block, {linear.output_offset, linear.activation_min, linear.activation_max}, strip);
    strip.from[0] += in_features;
    strip.to[0] += linear.out_features();
  }
}

void compute(const Linear& linear) {
  const uint32_t features = linear.out_features();
  for (uint32_t feature = 0; feature < features; feature += kBlock) {
    const uint32_t left = features - feature;
    compute_block(linear, feature, left < kBlock ? static_cast<int32_t>(left) : kBlock);
  }
}

// Quantisation is per tensor: CMSIS-NN takes the first item, and there must be no other.
int32_t only_item(KernelContext& ctx, const char* name, int32_t low, int32_t high) {
  const IntList list = ctx.int_list(name);
  if (!ctx.require(list.size() == 1, name, " has ", list.size(), " items, one needed")) return low;
  const int64_t item = list[0];
  const bool inside = ctx.require(item >= low && item <= high, name, " is ", item,
                                  ", the operator takes ", low, " to ", high);
  return inside ? static_cast<int32_t>(item) : low;
}

// Products of matrices

struct Product {
  const Tensor& lhs;
  const Tensor& rhs;  // transposed: [batch, columns, inner]
  const Tensor& out;
  int32_t lhs_offset;
  int32_t rhs_offset;
  int32_t output_offset;
  int32_t multiplier;
  int32_t shift;
};

bool check(KernelContext& ctx, const Product& product) {
  const Tensor& lhs = product.lhs;
  const Tensor& rhs = product.rhs;
  const Tensor& out = product.out;
  return ctx.require(lhs.rank == 3 && rhs.rank == 3 && out.rank == 3 &&
                         lhs.size(0) == out.size(0) && rhs.size(0) == out.size(0) &&
                         lhs.size(1) == out.size(1) && rhs.size(1) == out.size(2) &&
                         lhs.size(2) == rhs.size(2),
                     "lhs is ", lhs, ", rhs_transposed is ", rhs, ", out is ", out,
                     ": [batch, rows, inner], [batch, columns, inner] and [batch, rows, columns] "
                     "needed") &&
         ctx.require(is_row_major(lhs) && is_row_major(rhs) && is_row_major(out),
                     "lhs, rhs_transposed or out is not contiguous") &&
         ctx.require_disjoint(out, lhs, "lhs") && ctx.require_disjoint(out, rhs, "rhs_transposed");
}

void compute(const Product& product) {
  const uint32_t inner = product.lhs.size(2);
  const uint32_t columns = product.rhs.size(1);
  const int8_t* row = product.lhs.as<int8_t>();
  const int8_t* matrix = product.rhs.as<int8_t>();
  int8_t* out = product.out.as<int8_t>();
  for (uint32_t batch = 0; batch < product.out.size(0); ++batch, matrix += columns * inner) {
    for (uint32_t y = 0; y < product.out.size(1); ++y, row += inner) {
      for (uint32_t x = 0; x < columns; ++x) {
        const int32_t sum = dot_with_offsets(row, product.lhs_offset, matrix + x * inner,
                                             product.rhs_offset, inner, 0);
        const int32_t scaled = requantize(sum, product.multiplier, product.shift);
        *out++ = static_cast<int8_t>(
            clamp(wrapping_add(scaled, product.output_offset), INT8_MIN, INT8_MAX));
      }
    }
  }
}

}  // namespace

// cortex_m::quantized_batch_matmul.out(Tensor lhs, int lhs_zero_point, Tensor rhs_transposed,
//     int rhs_zero_point, int output_zero_point, int output_multiplier, int output_shift,
//     Tensor scratch, *, Tensor(a!) out). The operands' zero points come negated, as CMSIS-NN takes
// them; the scratch tensor is CMSIS-NN's.
void quantized_batch_matmul(KernelContext& ctx) {
  const Tensor& lhs = ctx.tensor("lhs", DType::kInt8);
  const int32_t lhs_offset = ctx.integer("lhs_zero_point", -128, 128);
  const Tensor& rhs = ctx.tensor("rhs_transposed", DType::kInt8);
  const int32_t rhs_offset = ctx.integer("rhs_zero_point", -128, 128);
  const int32_t output_offset = ctx.integer("output_zero_point", INT8_MIN, INT8_MAX);
  const int32_t multiplier = ctx.integer("output_multiplier", INT32_MIN, INT32_MAX);
  const int32_t shift = ctx.integer("output_shift", -kMaxRightShift, kMaxLeftShift);
  ctx.tensor("scratch");
  const Tensor& out = ctx.out(DType::kInt8);
  const Product product = {lhs, rhs, out, lhs_offset, rhs_offset, output_offset, multiplier, shift};
  if (ctx.done() && check(ctx, product)) compute(product);
}

// cortex_m::quantized_linear.out(Tensor input, Tensor weights, Tensor? bias, Tensor? kernel_sum,
//     int input_offset, int filter_offset, int output_offset, int[] requantize_multipliers,
//     int[] requantize_shifts, int activation_max, int activation_min, *, Tensor(a!) out)
void quantized_linear(KernelContext& ctx) {
  const Tensor& input = ctx.tensor("input", DType::kInt8);
  const Tensor& weights = ctx.tensor("weights", DType::kInt8);
  const Tensor* bias = ctx.optional_tensor("bias", DType::kInt32);
  const Tensor* kernel_sum = ctx.optional_tensor("kernel_sum", DType::kInt32);
  const int32_t input_offset = ctx.integer("input_offset", -128, 128);
  const int32_t filter_offset = ctx.integer("filter_offset", -128, 128);
  const int32_t output_offset = ctx.integer("output_offset", -128, 127);
  const int32_t multiplier = only_item(ctx, "requantize_multipliers", INT32_MIN, INT32_MAX);
  const int32_t shift = only_item(ctx, "requantize_shifts", -kMaxRightShift, kMaxLeftShift);
  const int32_t activation_max = ctx.integer("activation_max", INT8_MIN, INT8_MAX);
  const int32_t activation_min = ctx.integer("activation_min", INT8_MIN, INT8_MAX);
  const Tensor& out = ctx.out(DType::kInt8);
  const Linear linear = {input,      weights,      bias,           kernel_sum,
                         out,        input_offset, filter_offset,  output_offset,
                         multiplier, shift,        activation_min, activation_max};
  if (ctx.done() && check(ctx, linear)) compute(linear);
}

}  // namespace hil::builtin
