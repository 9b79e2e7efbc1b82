#include "runtime/builtin/registry.h"

#include <cstring>

#include "runtime/builtin/kernels/kernels.h"

namespace hil::builtin {
namespace {

constexpr Operator kOperators[] = {
#ifndef HIL_UPSTREAM_OPERATORS
    {"aten::_softmax.out", 4, softmax_float},
    {"aten::div.out", 3, div},
#endif
    {"aten::add.out", 4, add},
    {"aten::amax.out", 4, amax},
    {"aten::cat.out", 3, cat},
    {"aten::clamp.out", 4, clamp},
    {"aten::convolution.out", 10, convolution},
    {"aten::full.out", 3, full},
    {"aten::ge.Tensor_out", 3, ge},
    {"aten::max_pool2d_with_indices.out", 8, max_pool2d_with_indices},
    {"aten::maximum.out", 3, aten_maximum},
    {"aten::minimum.out", 3, aten_minimum},
    {"aten::mul.out", 3, mul},
    {"aten::permute_copy.out", 3, permute_copy},
    {"aten::select_copy.int_out", 4, select_copy},
    {"aten::sub.out", 4, sub},
    {"aten::unsqueeze_copy.out", 3, unsqueeze_copy},
    {"cortex_m::dequantize_per_tensor.out", 7, dequantize_per_tensor},
    {"cortex_m::maximum.out", 3, maximum},
    {"cortex_m::minimum.out", 3, minimum},
    {"cortex_m::pad.out", 5, pad},
    {"cortex_m::quantize_per_tensor.out", 7, quantize_per_tensor},
    {"cortex_m::quantized_activation.out", 3, quantized_activation},
    {"cortex_m::quantized_add.out", 14, quantized_add},
    {"cortex_m::quantized_avg_pool2d.out", 10, quantized_avg_pool2d, 1},
    {"cortex_m::quantized_avg_pool2d_nhwc.out", 10, quantized_avg_pool2d_nhwc},
    {"cortex_m::quantized_batch_matmul.out", 9, quantized_batch_matmul},
    {"cortex_m::quantized_conv2d.out", 14, quantized_conv2d},
    {"cortex_m::quantized_conv2d_nhwc.out", 14, quantized_conv2d_nhwc},
    {"cortex_m::quantized_depthwise_conv2d.out", 15, quantized_depthwise_conv2d},
    {"cortex_m::quantized_depthwise_conv2d_nhwc.out", 15, quantized_depthwise_conv2d_nhwc},
    {"cortex_m::quantized_div.out", 7, quantized_div},
    {"cortex_m::quantized_linear.out", 12, quantized_linear},
    {"cortex_m::quantized_max_pool2d.out", 11, quantized_max_pool2d},
    {"cortex_m::quantized_max_pool2d_nhwc.out", 11, quantized_max_pool2d_nhwc},
    {"cortex_m::quantized_mul.out", 8, quantized_mul},
    {"cortex_m::quantized_transpose_conv2d.out", 16, quantized_transpose_conv2d},
    {"cortex_m::quantized_transpose_conv2d_nhwc.out", 16, quantized_transpose_conv2d_nhwc},
    {"cortex_m::softmax.out", 8, softmax},
    {"cortex_m::transpose.out", 3, transpose},
    {"dim_order_ops::_clone_dim_order.out", 4, clone_dim_order},
#ifdef HIL_TEST_KERNELS
    {"hil_test::dots.out", 5, test_dots},
    {"hil_test::exit.out", 3, test_exit},
    {"hil_test::fault.out", 3, test_fault},
    {"hil_test::hang.out", 3, test_hang},
    {"hil_test::overcopy.out", 3, test_overcopy},
    {"hil_test::stray.out", 4, test_stray},
#endif
};

bool has_name(const Operator& op, const char* name, const char* overload) {
  const size_t length = std::strlen(name);
  if (std::strncmp(op.name, name, length) != 0) return false;
  const char* rest = op.name + length;
  if (overload[0] == 0) return rest[0] == 0;
  return rest[0] == '.' && std::strcmp(rest + 1, overload) == 0;
}

}  // namespace

Span<const Operator> operators() { return {kOperators, sizeof(kOperators) / sizeof(Operator)}; }

const Operator* find_operator(const char* name, const char* overload) {
  for (const Operator& op : kOperators) {
    if (has_name(op, name, overload)) return &op;
  }
  return nullptr;
}

}  // namespace hil::builtin
