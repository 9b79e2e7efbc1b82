// Quantised activations such as sigmoid, by table: the AOT compiler has evaluated the function at
// all 256 inputs. Clamps are bounds of convolutions and the like, or operators in elementwise.cpp
// and portable_elementwise.cpp.
#include "runtime/builtin/kernel.h"

namespace hil::builtin {

// cortex_m::quantized_activation.out(Tensor input, Tensor lut, *, Tensor(a!) out)
void quantized_activation(KernelContext& ctx) {
  constexpr uint32_t kTableSize = 256;
  const Tensor& input = ctx.tensor("input", DType::kInt8);
  const Tensor& lut = ctx.tensor("lut", DType::kInt8);
  const Tensor& out = ctx.out(DType::kInt8);
  if (!ctx.done()) return;
  if (!ctx.require(lut.numel == kTableSize, "lut is ", lut, ", 256 items needed") ||
      !ctx.require(input.numel == out.numel, "input is ", input, ", out is ", out,
                   ": the number of items differs") ||
      !ctx.require_disjoint(out, lut, "lut") || !ctx.require_disjoint(out, input, "input")) {
    return;
  }
  // Input -128 is the first entry.
  const int8_t* table = lut.as<int8_t>() - INT8_MIN;
  const int8_t* from = input.as<int8_t>();
  int8_t* to = out.as<int8_t>();
  for (uint32_t i = 0; i < input.numel; ++i) to[i] = table[from[i]];
}

}  // namespace hil::builtin
