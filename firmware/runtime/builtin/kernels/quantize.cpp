// Between float and int8 or int16, one scale and zero point for the whole tensor.
#include <cmath>

#include "runtime/builtin/kernel.h"
#include "runtime/builtin/kernels/requantize.h"

namespace hil::builtin {
namespace {

struct Quantization {
  float scale;
  int32_t zero_point;
  int32_t min;
  int32_t max;
  DType dtype;
};

// Arguments 1 to 5 of both operators.
Quantization read_quantization(KernelContext& ctx) {
  return {static_cast<float>(ctx.number("scale")), ctx.integer("zero_point", INT16_MIN, INT16_MAX),
          ctx.integer("quant_min", INT16_MIN, INT16_MAX),
          ctx.integer("quant_max", INT16_MIN, INT16_MAX), ctx.dtype("dtype")};
}

bool check(KernelContext& ctx, const Quantization& quantization, const Tensor& integers,
           const Tensor& input, const Tensor& out) {
  const bool is_int8 = quantization.dtype == DType::kInt8;
  const int32_t low = is_int8 ? INT8_MIN : INT16_MIN;
  const int32_t high = is_int8 ? INT8_MAX : INT16_MAX;
  return ctx.require(is_int8 || quantization.dtype == DType::kInt16, "dtype is ",
                     name(quantization.dtype), ", the operator takes int8 and int16") &&
         ctx.require(integers.dtype == quantization.dtype, "dtype is ", name(quantization.dtype),
                     ", the tensor is ", integers) &&
         ctx.require(low <= quantization.min && quantization.min <= quantization.max &&
                         quantization.max <= high,
                     "quant_min ", quantization.min, " and quant_max ", quantization.max,
                     " are not a range of ", name(quantization.dtype)) &&
         ctx.require(quantization.scale > 0 && std::isfinite(quantization.scale),
                     "scale is not a positive float") &&
         ctx.require(same_shape(input, out), "input is ", input, ", out is ", out,
                     ": the shapes differ") &&
         ctx.require(same_layout(input, out), "input and out differ in dim order") &&
         ctx.require_disjoint(out, input, "input");
}

int32_t quantize(float scaled, const Quantization& quantization) {
  // Beyond any int16, and small enough to add a zero point.
  constexpr float kFar = 1 << 20;
  if (std::isnan(scaled)) scaled = 0;
  if (scaled > kFar) scaled = kFar;
  if (scaled < -kFar) scaled = -kFar;
  const int32_t rounded = static_cast<int32_t>(std::nearbyint(scaled));
  return clamp(rounded + quantization.zero_point, quantization.min, quantization.max);
}

template <typename Integer>
void quantize_all(const Quantization& quantization, const Tensor& input, const Tensor& out) {
  // ExecuTorch multiplies by the inverse, which rounds otherwise than a division.
  const float inverse = 1.0f / quantization.scale;
  const float* from = input.as<float>();
  Integer* to = out.as<Integer>();
  for (uint32_t i = 0; i < input.numel; ++i) {
    to[i] = static_cast<Integer>(quantize(inverse * from[i], quantization));
  }
}

template <typename Integer>
void dequantize_all(const Quantization& quantization, const Tensor& input, const Tensor& out) {
  const Integer* from = input.as<Integer>();
  float* to = out.as<float>();
  for (uint32_t i = 0; i < input.numel; ++i) {
    to[i] = static_cast<float>(from[i] - quantization.zero_point) * quantization.scale;
  }
}

}  // namespace

// cortex_m::quantize_per_tensor.out(Tensor input, float scale, int zero_point, int quant_min,
//     int quant_max, ScalarType dtype, *, Tensor(a!) out)
void quantize_per_tensor(KernelContext& ctx) {
  const Tensor& input = ctx.tensor("input", DType::kFloat32);
  const Quantization quantization = read_quantization(ctx);
  const Tensor& out = ctx.out();
  if (!ctx.done() || !check(ctx, quantization, out, input, out)) return;
  if (quantization.dtype == DType::kInt8) {
    quantize_all<int8_t>(quantization, input, out);
  } else {
    quantize_all<int16_t>(quantization, input, out);
  }
}

// cortex_m::dequantize_per_tensor.out(Tensor input, float scale, int zero_point, int quant_min,
//     int quant_max, ScalarType dtype, *, Tensor(a!) out)
void dequantize_per_tensor(KernelContext& ctx) {
  const Tensor& input = ctx.tensor("input");
  const Quantization quantization = read_quantization(ctx);
  const Tensor& out = ctx.out(DType::kFloat32);
  if (!ctx.done() || !check(ctx, quantization, input, input, out)) return;
  if (quantization.dtype == DType::kInt8) {
    dequantize_all<int8_t>(quantization, input, out);
  } else {
    dequantize_all<int16_t>(quantization, input, out);
  }
}

}  // namespace hil::builtin
