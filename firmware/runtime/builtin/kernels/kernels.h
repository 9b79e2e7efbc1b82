// Every kernel, for the registry. The schemas are those of ExecuTorch's
// backends/cortex_m/ops/operators.yaml and kernels/portable/functions.yaml.
#pragma once

#include "runtime/builtin/kernel.h"

namespace hil::builtin {

// activation.cpp
void quantized_activation(KernelContext& ctx);

// copy.cpp
void clone_dim_order(KernelContext& ctx);

// linear.cpp
void quantized_linear(KernelContext& ctx);

// quantize.cpp
void dequantize_per_tensor(KernelContext& ctx);
void quantize_per_tensor(KernelContext& ctx);

// testing.cpp: operators that misbehave, for the harness's own tests
void test_exit(KernelContext& ctx);
void test_fault(KernelContext& ctx);
void test_hang(KernelContext& ctx);

}  // namespace hil::builtin
