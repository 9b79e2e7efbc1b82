// What a kernel sees of its call.
//
// A kernel takes its arguments by their place in the operator's schema, asks ok() once, checks what
// the getters cannot know (shapes, ranges) with require(), and computes:
//
//   const Tensor& input = ctx.tensor(0, "input", DType::kInt8);
//   const Tensor& out = ctx.out(1, DType::kInt8);
//   if (!ctx.ok()) return;
//   if (!ctx.require(same_shape(input, out), "input is ", input, ", out is ", out)) return;
//
// A getter that fails records why and returns a harmless value; the first cause is the one
// reported.
#pragma once

#include "runtime/builtin/method.h"
#include "runtime/builtin/report.h"

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

class KernelContext {
 public:
  KernelContext(const Method& method, uint32_t instruction, Failure* failure)
      : method_(method), instruction_(instruction), failure_(failure) {}

  bool ok() const { return ok_; }

  // How many the call has, out included.
  uint32_t arguments() const { return static_cast<uint32_t>(call().args.size) - 1; }

  const Tensor& tensor(int i, const char* name, DType dtype);
  const Tensor& tensor(int i, const char* name);
  // nullptr for None.
  const Tensor* optional_tensor(int i, const char* name, DType dtype);
  // A tensor that may be written.
  const Tensor& out(int i, DType dtype);
  const Tensor& out(int i);

  int64_t integer(int i, const char* name);
  int32_t integer(int i, const char* name, int32_t low, int32_t high);
  // A dimension of a tensor of `rank`, from the end if negative; the result is not.
  int axis(int i, const char* name, int rank);
  double number(int i, const char* name);
  bool boolean(int i, const char* name);
  DType dtype(int i, const char* name);
  IntList int_list(int i, const char* name);
  bool is_none(int i) const { return value(i).type == ValueType::kNone; }
  TensorList tensor_list(int i, const char* name);

  template <typename... Parts>
  void fail(const Parts&... parts) {
    if (!ok_) return;
    ok_ = false;
    report(failure_, Code::kKernelFailed, parts...);
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
  const Value& value(int i) const { return method_.values.data[call().args.data[i]]; }
  const Instruction& call() const { return method_.instructions.data[instruction_]; }
  bool require_type(int i, const char* name, ValueType type);
  void note_place();

  const Method& method_;
  uint32_t instruction_;
  Failure* failure_;
  bool ok_ = true;
};

}  // namespace hil::builtin
