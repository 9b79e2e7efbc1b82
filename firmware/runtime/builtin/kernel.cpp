#include "runtime/builtin/kernel.h"

namespace hil::builtin {
namespace {

const Tensor kNoTensor;

}  // namespace

void KernelContext::note_place() {
  failure_->instruction = static_cast<int32_t>(instruction_);
  Text(failure_->op).add(call().op->name);
}

bool KernelContext::require_type(int i, const char* name, ValueType type) {
  return require(value(i).type == type, name, " (argument ", i, ") is ",
                 builtin::name(value(i).type), ", the operator takes ", builtin::name(type));
}

const Tensor& KernelContext::tensor(int i, const char* name) {
  return require_type(i, name, ValueType::kTensor) ? *value(i).tensor : kNoTensor;
}

const Tensor& KernelContext::tensor(int i, const char* name, DType dtype) {
  const Tensor& found = tensor(i, name);
  if (&found == &kNoTensor) return kNoTensor;
  const bool right = require(found.dtype == dtype, name, " (argument ", i, ") is ", found,
                             ", the operator takes ", builtin::name(dtype));
  return right ? found : kNoTensor;
}

const Tensor* KernelContext::optional_tensor(int i, const char* name, DType dtype) {
  return is_none(i) ? nullptr : &tensor(i, name, dtype);
}

const Tensor& KernelContext::out(int i) {
  const Tensor& found = tensor(i, "out");
  if (&found != &kNoTensor) require(found.writable, "out (argument ", i, ") is a constant");
  return found;
}

const Tensor& KernelContext::out(int i, DType dtype) {
  out(i);
  return tensor(i, "out", dtype);
}

int64_t KernelContext::integer(int i, const char* name) {
  return require_type(i, name, ValueType::kInt) ? value(i).integer : 0;
}

int32_t KernelContext::integer(int i, const char* name, int32_t low, int32_t high) {
  if (!require_type(i, name, ValueType::kInt)) return low;
  const int64_t found = value(i).integer;
  const bool inside = require(found >= low && found <= high, name, " (argument ", i, ") is ", found,
                              ", the operator takes ", low, " to ", high);
  return inside ? static_cast<int32_t>(found) : low;
}

int KernelContext::axis(int i, const char* name, int rank) {
  const int32_t found = integer(i, name, -rank, rank - 1);
  return found < 0 ? found + rank : found;
}

double KernelContext::number(int i, const char* name) {
  if (value(i).type == ValueType::kInt) return static_cast<double>(value(i).integer);
  return require_type(i, name, ValueType::kDouble) ? value(i).real : 0.0;
}

bool KernelContext::boolean(int i, const char* name) {
  return require_type(i, name, ValueType::kBool) && value(i).integer != 0;
}

DType KernelContext::dtype(int i, const char* name) {
  return static_cast<DType>(integer(i, name, 0, UINT8_MAX));
}

IntList KernelContext::int_list(int i, const char* name) {
  if (!require_type(i, name, ValueType::kIntList)) return IntList();
  return IntList(method_.values.data, value(i));
}

TensorList KernelContext::tensor_list(int i, const char* name) {
  if (!require_type(i, name, ValueType::kTensorList)) return TensorList();
  return TensorList(method_.values.data, value(i));
}

bool KernelContext::require_disjoint(const Tensor& out, const Tensor& input,
                                     const char* input_name) {
  return require(!overlap(out, input), "out and ", input_name,
                 " share memory: the memory plan is wrong");
}

}  // namespace hil::builtin
