#include "runtime/builtin/kernel.h"

namespace hil::builtin {
namespace {

const Tensor kNoTensor;
const Value kNoValue = {};

}  // namespace

Arity arity_of(const Operator& op) {
  KernelContext context;
  op.kernel(context);
  return {context.next_, context.next_ + context.omitted_};
}

void KernelContext::note_place() {
  failure_->instruction = static_cast<int32_t>(instruction_);
  Text(failure_->op).add(call().op->name);
}

Argument KernelContext::any(const char* name) {
  const uint32_t place = next_++;
  if (place >= given()) {
    fail("called with ", given(), " arguments, the operator takes more");
    return {kNoValue, place, name};
  }
  return {method_->values.data[call().args.data[place]], place, name};
}

bool KernelContext::done() {
  return require(next_ == given(), "called with ", given(), " arguments, the operator takes ",
                 next_) &&
         ok_;
}

bool KernelContext::require_type(const Argument& argument, ValueType type) {
  return require(argument.value.type == type, argument.name, " (argument ", argument.place, ") is ",
                 builtin::name(argument.value.type), ", the operator takes ", builtin::name(type));
}

const Tensor& KernelContext::tensor(const Argument& argument) {
  return require_type(argument, ValueType::kTensor) ? *argument.value.tensor : kNoTensor;
}

const Tensor& KernelContext::tensor(const Argument& argument, DType dtype) {
  const Tensor& found = tensor(argument);
  if (&found == &kNoTensor) return kNoTensor;
  const bool right = require(found.dtype == dtype, argument.name, " (argument ", argument.place,
                             ") is ", found, ", the operator takes ", builtin::name(dtype));
  return right ? found : kNoTensor;
}

const Tensor& KernelContext::tensor(const char* name) { return tensor(any(name)); }

const Tensor& KernelContext::tensor(const char* name, DType dtype) {
  return tensor(any(name), dtype);
}

const Tensor* KernelContext::optional_tensor(const char* name, DType dtype) {
  const Argument argument = any(name);
  return argument.is_none() ? nullptr : &tensor(argument, dtype);
}

const Tensor& KernelContext::out(const char* name) { return writable(any(name)); }

const Tensor& KernelContext::out(DType dtype, const char* name) {
  const Argument argument = any(name);
  writable(argument);
  return tensor(argument, dtype);
}

const Tensor& KernelContext::writable(const Argument& argument) {
  const Tensor& found = tensor(argument);
  if (&found != &kNoTensor) {
    require(found.writable, argument.name, " (argument ", argument.place, ") is a constant");
  }
  return found;
}

int64_t KernelContext::integer(const char* name) { return integer(any(name)); }

int64_t KernelContext::integer(const Argument& argument) {
  return require_type(argument, ValueType::kInt) ? argument.value.integer : 0;
}

int32_t KernelContext::integer(const char* name, int32_t low, int32_t high) {
  return integer(any(name), low, high);
}

int32_t KernelContext::integer(const Argument& argument, int32_t low, int32_t high) {
  if (!require_type(argument, ValueType::kInt)) return low;
  const int64_t found = argument.value.integer;
  const bool inside =
      require(found >= low && found <= high, argument.name, " (argument ", argument.place, ") is ",
              found, ", the operator takes ", low, " to ", high);
  return inside ? static_cast<int32_t>(found) : low;
}

int KernelContext::axis(const Argument& argument, int rank) {
  const int32_t found = integer(argument, -rank, rank - 1);
  return found < 0 ? found + rank : found;
}

double KernelContext::number(const char* name) { return number(any(name)); }

double KernelContext::number(const Argument& argument) {
  if (argument.value.type == ValueType::kInt) return static_cast<double>(argument.value.integer);
  if (argument.value.type == ValueType::kBool) return argument.value.integer != 0 ? 1.0 : 0.0;
  return require_type(argument, ValueType::kDouble) ? argument.value.real : 0.0;
}

bool KernelContext::boolean(const char* name) {
  const Argument argument = any(name);
  return require_type(argument, ValueType::kBool) && argument.value.integer != 0;
}

bool KernelContext::boolean_if_given(const char* name) {
  const bool given_here =
      next_ < given() && method_->values.data[call().args.data[next_]].type == ValueType::kBool;
  if (given_here) return boolean(name);
  ++omitted_;
  return false;
}

DType KernelContext::dtype(const char* name) {
  return static_cast<DType>(integer(name, 0, UINT8_MAX));
}

IntList KernelContext::int_list(const char* name) { return int_list(any(name)); }

IntList KernelContext::int_list(const Argument& argument) {
  if (!require_type(argument, ValueType::kIntList)) return IntList();
  return IntList(method_->values.data, argument.value);
}

TensorList KernelContext::tensor_list(const char* name) {
  const Argument argument = any(name);
  if (!require_type(argument, ValueType::kTensorList)) return TensorList();
  return TensorList(method_->values.data, argument.value);
}

TensorList KernelContext::out_list() {
  const TensorList list = tensor_list("out");
  for (uint32_t i = 0; i < list.size(); ++i) {
    require(list[i].writable, "out item ", i, " is a constant");
  }
  return list;
}

OptionalTensorList KernelContext::optional_tensor_list(const char* name) {
  const Argument argument = any(name);
  if (!require_type(argument, ValueType::kOptionalTensorList)) return OptionalTensorList();
  return OptionalTensorList(method_->values.data, argument.value);
}

const char* KernelContext::string(const char* name) { return string(any(name)); }

const char* KernelContext::string(const Argument& argument) {
  return require_type(argument, ValueType::kString) ? argument.value.string : "";
}

DoubleList KernelContext::double_list(const Argument& argument) {
  return require_type(argument, ValueType::kDoubleList) ? DoubleList(argument.value) : DoubleList();
}

bool KernelContext::require_disjoint(const Tensor& out, const Tensor& input,
                                     const char* input_name) {
  return require(!overlap(out, input), "out and ", input_name,
                 " share memory: the memory plan is wrong");
}

}  // namespace hil::builtin
