// One call of one operator, made by hand: what a kernel does at edges that no program reaches.
//
// Each tensor lies in a block of its own, so that AddressSanitizer sees a byte too far.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/builtin/kernel.h"

namespace hil::builtin {

using Sizes = std::vector<int32_t>;

class Call {
 public:
  explicit Call(const char* op) : op_(find_operator(op, "")) {}

  // The next argument. Tensors are contiguous.
  template <typename T>
  Call& tensor(DType dtype, const Sizes& sizes, const std::vector<T>& items);
  Call& int8(const Sizes& sizes, const std::vector<int8_t>& items) {
    return tensor(DType::kInt8, sizes, items);
  }
  Call& int32(const Sizes& sizes, const std::vector<int32_t>& items) {
    return tensor(DType::kInt32, sizes, items);
  }
  Call& floats(const Sizes& sizes, const std::vector<float>& items) {
    return tensor(DType::kFloat32, sizes, items);
  }
  Call& int64(const Sizes& sizes, const std::vector<int64_t>& items) {
    return tensor(DType::kInt64, sizes, items);
  }
  Call& out(Sizes sizes, DType dtype = DType::kInt8);
  Call& none() { return add(Value()); }
  Call& integer(int64_t value);
  Call& integers(const std::vector<int64_t>& items);  // one argument each
  Call& boolean(bool value);
  Call& real(double value);
  Call& text(const char* value);
  Call& list(const std::vector<int64_t>& items);
  Call& doubles(const std::vector<double>& items);
  // Of int64 tensors of one dimension; an empty one stands for None.
  Call& indices(const std::vector<std::vector<int64_t>>& items);
  Call& outs(const std::vector<Sizes>& items);
  Call& tensors(const std::vector<std::pair<Sizes, std::vector<int8_t>>>& items);
  Call& out_of_first(Sizes sizes);  // in the memory of the first tensor

  // "" if the kernel took it, otherwise what it says.
  std::string run();

  // Of the last tensor, or one before it.
  template <typename T = int8_t>
  std::vector<T> result(size_t before_last = 0) const {
    const Tensor& tensor = tensors_[tensors_.size() - 1 - before_last]->tensor;
    return std::vector<T>(tensor.as<T>(), tensor.as<T>() + tensor.numel);
  }

 private:
  // Shared by copies of the call, since values point to them.
  struct Storage {
    std::vector<uint8_t> bytes;
    std::vector<int32_t> sizes;
    std::vector<uint8_t> order;
    Tensor tensor;
  };

  Call& add(const Value& value);
  Call& add_list(ValueType type, const std::vector<uint8_t>& bytes, size_t count);
  Value place(DType dtype, Sizes sizes, std::vector<uint8_t> bytes, bool writable);

  const Operator* op_;
  std::vector<std::shared_ptr<Storage>> tensors_;
  std::vector<std::shared_ptr<std::vector<uint8_t>>> lists_;
  std::vector<Value> values_;
  std::vector<int32_t> args_;
};

template <typename T>
Call& Call::tensor(DType dtype, const Sizes& sizes, const std::vector<T>& items) {
  const auto* first = reinterpret_cast<const uint8_t*>(items.data());
  return add(place(dtype, sizes, {first, first + items.size() * sizeof(T)}, false));
}

}  // namespace hil::builtin
