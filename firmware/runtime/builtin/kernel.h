// A kernel's view of its call.
//
// A kernel reads its arguments in the order of the operator's schema, all of them, and asks done()
// once. Then it checks what the getters cannot know (shapes, ranges) with require(), and computes:
//
//   const Tensor& input = ctx.tensor("input", DType::kInt8);
//   const Tensor& out = ctx.out(DType::kInt8);
//   if (!ctx.done()) return;
//   if (!ctx.require(same_shape(input, out), "input is ", input, ", out is ", out)) return;
//
// A getter that fails records why and returns a harmless value; the first cause is the one
// reported. Nothing may be done before done(): the loader runs each kernel up to there, on no
// arguments at all, to learn how many it takes.
#pragma once

#include "runtime/builtin/method.h"
#include "runtime/failure.h"

namespace hil::builtin {

class IntList {
 public:
  IntList() = default;
  IntList(const Value* values, const Value& list) : values_(values), list_(&list) {}

  uint32_t size() const { return list_ == nullptr ? 0 : list_->count; }
  int64_t operator[](uint32_t i) const { return values_[list_->item<int64_t>(i)].integer; }

 private:
  const Value* values_ = nullptr;
  const Value* list_ = nullptr;
};

class DoubleList {
 public:
  DoubleList() = default;
  explicit DoubleList(const Value& list) : list_(&list) {}

  uint32_t size() const { return list_ == nullptr ? 0 : list_->count; }
  double operator[](uint32_t i) const { return list_->item<double>(i); }

 private:
  const Value* list_ = nullptr;
};

class TensorList {
 public:
  TensorList() = default;
  TensorList(const Value* values, const Value& list) : values_(values), list_(&list) {}

  uint32_t size() const { return list_ == nullptr ? 0 : list_->count; }
  const Tensor& operator[](uint32_t i) const { return *values_[list_->item<int32_t>(i)].tensor; }

 private:
  const Value* values_ = nullptr;
  const Value* list_ = nullptr;
};

class OptionalTensorList {
 public:
  OptionalTensorList() = default;
  OptionalTensorList(const Value* values, const Value& list) : values_(values), list_(&list) {}

  uint32_t size() const { return list_ == nullptr ? 0 : list_->count; }
  // nullptr for None.
  const Tensor* operator[](uint32_t i) const {
    const int32_t at = list_->item<int32_t>(i);
    return at < 0 || values_[at].type == ValueType::kNone ? nullptr : values_[at].tensor;
  }

 private:
  const Value* values_ = nullptr;
  const Value* list_ = nullptr;
};

// An argument whose type or range depends on a later one: read in order, used after done().
struct Argument {
  const Value& value;
  uint32_t place;
  const char* name;

  bool is_none() const { return value.type == ValueType::kNone; }
};

class KernelContext {
 public:
  KernelContext(const Method& method, uint32_t instruction, Failure* failure)
      : method_(&method), instruction_(instruction), failure_(failure) {}

  const Tensor& tensor(const char* name, DType dtype);
  const Tensor& tensor(const char* name);
  // nullptr for None.
  const Tensor* optional_tensor(const char* name, DType dtype);
  // A tensor that may be written.
  const Tensor& out(DType dtype, const char* name = "out");
  const Tensor& out(const char* name = "out");

  int64_t integer(const char* name);
  int32_t integer(const char* name, int32_t low, int32_t high);
  double number(const char* name);  // a bool is 0 or 1
  bool boolean(const char* name);
  // Reads an argument that older versions of the schema lack, and that no bool follows there.
  bool boolean_if_given(const char* name);
  DType dtype(const char* name);
  IntList int_list(const char* name);
  TensorList tensor_list(const char* name);
  // Reads a list of tensors that the kernel writes.
  TensorList out_list();
  OptionalTensorList optional_tensor_list(const char* name);
  // Ends with a zero.
  const char* string(const char* name);
  Argument any(const char* name);

  // Have all arguments been read, and does none fail?
  bool done();
  bool ok() const { return ok_; }

  // After done().
  int64_t integer(const Argument& argument);
  int32_t integer(const Argument& argument, int32_t low, int32_t high);
  // A dimension of a tensor of `rank`, from the end if negative; the result is not.
  int axis(const Argument& argument, int rank);
  double number(const Argument& argument);
  const char* string(const Argument& argument);
  IntList int_list(const Argument& argument);
  DoubleList double_list(const Argument& argument);

  template <typename... Parts>
  void fail(const Parts&... parts) {
    if (!ok_) return;
    ok_ = false;
    report(failure_, HIL_STATUS_KERNEL_FAILED, parts...);
    note_place();
  }

  // Returns `condition`.
  template <typename... Parts>
  bool require(bool condition, const Parts&... parts) {
    if (!condition) fail(parts...);
    return condition;
  }

  // Kernels write while they read: refuses an `out` that shares bytes with `input`.
  bool require_disjoint(const Tensor& out, const Tensor& input, const char* input_name);

 private:
  friend Arity arity_of(const Operator& op);
  KernelContext() : ok_(false) {}  // without arguments

  const Instruction& call() const { return method_->instructions.data[instruction_]; }
  // The last of a call's arguments is what the operator returns.
  uint32_t given() const {
    return method_ == nullptr ? 0 : static_cast<uint32_t>(call().args.size) - 1;
  }
  bool require_type(const Argument& argument, ValueType type);
  const Tensor& tensor(const Argument& argument);
  const Tensor& tensor(const Argument& argument, DType dtype);
  const Tensor& writable(const Argument& argument);
  void note_place();

  const Method* method_ = nullptr;
  uint32_t instruction_ = 0;
  Failure* failure_ = nullptr;
  uint32_t next_ = 0;
  uint32_t omitted_ = 0;
  bool ok_ = true;
};

}  // namespace hil::builtin
