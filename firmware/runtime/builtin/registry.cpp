#include "runtime/builtin/registry.h"

#include <cstring>

#include "runtime/builtin/kernel.h"

namespace hil::builtin {

#define HIL_OPERATOR(name, kernel) void kernel(KernelContext& ctx);
#include "runtime/builtin/operators.inc"
#undef HIL_OPERATOR

namespace {

constexpr Operator kOperators[] = {
#define HIL_OPERATOR(name, kernel) {name, kernel},
#include "runtime/builtin/operators.inc"
#undef HIL_OPERATOR
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
