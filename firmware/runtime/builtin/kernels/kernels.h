// Every kernel, for the registry. The schemas are those of ExecuTorch's
// backends/cortex_m/ops/operators.yaml and kernels/portable/functions.yaml.
#pragma once

#include "runtime/builtin/kernel.h"

namespace hil::builtin {

// activation.cpp
void quantized_activation(KernelContext& ctx);

// convolution.cpp
void quantized_conv2d(KernelContext& ctx);
void quantized_conv2d_nhwc(KernelContext& ctx);
void quantized_depthwise_conv2d(KernelContext& ctx);
void quantized_depthwise_conv2d_nhwc(KernelContext& ctx);

// copy.cpp
void cat(KernelContext& ctx);
void clone_dim_order(KernelContext& ctx);
void permute_copy(KernelContext& ctx);
void select_copy(KernelContext& ctx);
void unsqueeze_copy(KernelContext& ctx);

// elementwise.cpp
void maximum(KernelContext& ctx);
void minimum(KernelContext& ctx);
void quantized_add(KernelContext& ctx);
void quantized_div(KernelContext& ctx);
void quantized_mul(KernelContext& ctx);

// linear.cpp
void quantized_batch_matmul(KernelContext& ctx);
void quantized_linear(KernelContext& ctx);

// pooling.cpp
void max_pool2d_with_indices(KernelContext& ctx);
void quantized_avg_pool2d(KernelContext& ctx);
void quantized_avg_pool2d_nhwc(KernelContext& ctx);
void quantized_max_pool2d(KernelContext& ctx);
void quantized_max_pool2d_nhwc(KernelContext& ctx);

// portable_convolution.cpp
void convolution(KernelContext& ctx);

// portable_elementwise.cpp
void add(KernelContext& ctx);
void aten_maximum(KernelContext& ctx);
void aten_minimum(KernelContext& ctx);
void clamp(KernelContext& ctx);
void div(KernelContext& ctx);
void full(KernelContext& ctx);
void ge(KernelContext& ctx);
void mul(KernelContext& ctx);
void sub(KernelContext& ctx);

// portable_softmax.cpp
void softmax_float(KernelContext& ctx);

// quantize.cpp
void dequantize_per_tensor(KernelContext& ctx);
void quantize_per_tensor(KernelContext& ctx);

// rearrange.cpp
void pad(KernelContext& ctx);
void transpose(KernelContext& ctx);

// reduction.cpp
void amax(KernelContext& ctx);

// softmax.cpp
void softmax(KernelContext& ctx);

// transpose_convolution.cpp
void quantized_transpose_conv2d(KernelContext& ctx);
void quantized_transpose_conv2d_nhwc(KernelContext& ctx);

// testing.cpp: operators that misbehave, for the harness's own tests
void test_dots(KernelContext& ctx);
void test_exit(KernelContext& ctx);
void test_fault(KernelContext& ctx);
void test_hang(KernelContext& ctx);
void test_overcopy(KernelContext& ctx);
void test_stray(KernelContext& ctx);

}  // namespace hil::builtin
