#include "tests/call.h"

#include <doctest/doctest.h>

#include <utility>

namespace hil::builtin {

Call& Call::add(const Value& value) {
  args_.push_back(static_cast<int32_t>(values_.size()));
  values_.push_back(value);
  return *this;
}

Value Call::place(DType dtype, Sizes sizes, std::vector<uint8_t> bytes, bool writable) {
  uint32_t numel = 1;
  for (const int32_t size : sizes) numel *= static_cast<uint32_t>(size);
  std::vector<uint8_t> order;
  for (size_t i = 0; i < sizes.size(); ++i) order.push_back(static_cast<uint8_t>(i));
  REQUIRE(bytes.size() == numel * item_size(dtype));
  Storage& kept = *tensors_.emplace_back(std::make_shared<Storage>());
  kept.bytes = std::move(bytes);
  kept.sizes = std::move(sizes);
  kept.order = std::move(order);
  Tensor& tensor = kept.tensor;
  tensor.data = kept.bytes.data();
  tensor.sizes = kept.sizes.data();
  tensor.dim_order = kept.order.data();
  tensor.numel = numel;
  tensor.nbytes = static_cast<uint32_t>(kept.bytes.size());
  tensor.dtype = dtype;
  tensor.rank = static_cast<uint8_t>(kept.sizes.size());
  tensor.writable = writable;
  Value value;
  value.type = ValueType::kTensor;
  value.tensor = &tensor;
  return value;
}

Call& Call::out_of_first(Sizes sizes) {
  out(std::move(sizes));
  tensors_.back()->tensor.data = tensors_.front()->tensor.data;
  return *this;
}

Call& Call::out(Sizes sizes, DType dtype) {
  uint32_t bytes = item_size(dtype);
  for (const int32_t size : sizes) bytes *= static_cast<uint32_t>(size);
  return add(place(dtype, std::move(sizes), std::vector<uint8_t>(bytes, 0xA5), true));
}

Call& Call::integer(int64_t number) {
  Value value;
  value.type = ValueType::kInt;
  value.integer = number;
  return add(value);
}

Call& Call::integers(const std::vector<int64_t>& items) {
  for (const int64_t item : items) integer(item);
  return *this;
}

Call& Call::boolean(bool truth) {
  Value value;
  value.type = ValueType::kBool;
  value.integer = truth ? 1 : 0;
  return add(value);
}

Call& Call::real(double number) {
  Value value;
  value.type = ValueType::kDouble;
  value.real = number;
  return add(value);
}

template <typename Number>
std::vector<uint8_t> bytes_of(const std::vector<Number>& numbers) {
  const auto* first = reinterpret_cast<const uint8_t*>(numbers.data());
  return {first, first + numbers.size() * sizeof(Number)};
}

Call& Call::add_list(ValueType type, const std::vector<uint8_t>& bytes, size_t count) {
  Value value;
  value.type = type;
  value.count = static_cast<uint32_t>(count);
  value.items = lists_.emplace_back(std::make_shared<std::vector<uint8_t>>(bytes))->data();
  return add(value);
}

// As in a program, lists have the numbers of the values that hold their items.
Call& Call::list(const std::vector<int64_t>& items) {
  std::vector<int64_t> numbers;
  for (const int64_t item : items) {
    Value value;
    value.type = ValueType::kInt;
    value.integer = item;
    numbers.push_back(static_cast<int64_t>(values_.size()));
    values_.push_back(value);
  }
  return add_list(ValueType::kIntList, bytes_of(numbers), numbers.size());
}

Call& Call::tensors(const std::vector<std::pair<Sizes, std::vector<int8_t>>>& items) {
  std::vector<int32_t> numbers;
  for (const auto& [sizes, values] : items) {
    numbers.push_back(static_cast<int32_t>(values_.size()));
    values_.push_back(place(DType::kInt8, sizes, bytes_of(values), false));
  }
  return add_list(ValueType::kTensorList, bytes_of(numbers), numbers.size());
}

Call& Call::text(const char* value) {
  Value string;
  string.type = ValueType::kString;
  string.string = value;
  return add(string);
}

Call& Call::doubles(const std::vector<double>& items) {
  return add_list(ValueType::kDoubleList, bytes_of(items), items.size());
}

Call& Call::indices(const std::vector<std::vector<int64_t>>& items) {
  std::vector<int32_t> numbers;
  for (const std::vector<int64_t>& item : items) {
    numbers.push_back(item.empty() ? -1 : static_cast<int32_t>(values_.size()));
    if (item.empty()) continue;
    values_.push_back(
        place(DType::kInt64, {static_cast<int32_t>(item.size())}, bytes_of(item), false));
  }
  return add_list(ValueType::kOptionalTensorList, bytes_of(numbers), numbers.size());
}

Call& Call::outs(const std::vector<Sizes>& items) {
  std::vector<int32_t> numbers;
  for (const Sizes& sizes : items) {
    numbers.push_back(static_cast<int32_t>(values_.size()));
    size_t bytes = 1;
    for (const int32_t size : sizes) bytes *= static_cast<size_t>(size);
    values_.push_back(place(DType::kInt8, sizes, std::vector<uint8_t>(bytes, 0xA5), true));
  }
  return add_list(ValueType::kTensorList, bytes_of(numbers), numbers.size());
}

std::string Call::run() {
  REQUIRE(op_ != nullptr);
  std::vector<int32_t> args = args_;
  args.push_back(args.empty() ? 0 : args.back());  // what the operator returns
  Instruction instruction;
  instruction.opcode = Opcode::kKernel;
  instruction.op = op_;
  instruction.args = {args.data(), args.size()};
  Method method;
  method.values = {values_.data(), values_.size()};
  method.instructions = {&instruction, 1};
  Failure failure;
  KernelContext context(method, 0, &failure);
  op_->kernel(context);
  if (context.ok()) return "";
  CHECK(failure.code == HIL_STATUS_KERNEL_FAILED);
  CHECK(std::string(failure.op) == op_->name);
  return failure.message;
}

}  // namespace hil::builtin
