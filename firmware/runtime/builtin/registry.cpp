#include "runtime/builtin/registry.h"

#include <cstring>

#include "runtime/builtin/kernels/kernels.h"

namespace hil::builtin {
namespace {

constexpr Operator kOperators[] = {
    {"cortex_m::dequantize_per_tensor.out", 7, dequantize_per_tensor},
    {"cortex_m::quantize_per_tensor.out", 7, quantize_per_tensor},
    {"cortex_m::quantized_activation.out", 3, quantized_activation},
    {"cortex_m::quantized_linear.out", 12, quantized_linear},
    {"dim_order_ops::_clone_dim_order.out", 4, clone_dim_order},
#ifdef HIL_TEST_KERNELS
    {"hil_test::exit.out", 3, test_exit},
    {"hil_test::fault.out", 3, test_fault},
    {"hil_test::hang.out", 3, test_hang},
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
