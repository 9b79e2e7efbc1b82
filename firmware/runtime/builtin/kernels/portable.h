// Common parts of ATen's operators: items of several dtypes, and scalars in place of tensors.
#pragma once

#include <cstring>
#include <type_traits>

#include "runtime/builtin/kernel.h"
#include "runtime/builtin/kernels/canonical_nan.h"
#include "runtime/builtin/kernels/walk.h"

namespace hil::builtin {

// A bool is read as a byte: of a hostile program it may be any.
template <typename T>
constexpr DType kDTypeOf = DType::kBool;
template <>
inline constexpr DType kDTypeOf<float> = DType::kFloat32;
template <>
inline constexpr DType kDTypeOf<int8_t> = DType::kInt8;
template <>
inline constexpr DType kDTypeOf<int16_t> = DType::kInt16;
template <>
inline constexpr DType kDTypeOf<int32_t> = DType::kInt32;
template <>
inline constexpr DType kDTypeOf<int64_t> = DType::kInt64;

using Bool = uint8_t;

// "float32 or int64"
struct DTypeNames {
  Span<const DType> dtypes;
};

inline void append(Text& text, const DTypeNames& names) {
  for (size_t i = 0; i < names.dtypes.size; ++i) {
    text.add(i == 0 ? "" : " or ", name(names.dtypes.data[i]));
  }
}

// visit(T()) for the one of `Types` that `tensor` has; a failure if it has another.
template <typename... Types, typename Visit>
void visit_dtype(KernelContext& ctx, const char* name, const Tensor& tensor, const Visit& visit) {
  constexpr DType kTypes[] = {kDTypeOf<Types>...};
  const bool found = (... || (tensor.dtype == kDTypeOf<Types> ? (visit(Types()), true) : false));
  ctx.require(found, name, " is ", tensor, ", the operator takes ",
              DTypeNames{{kTypes, sizeof(kTypes) / sizeof(DType)}});
}

// An argument that is a Scalar, in the type that the operator computes in.
template <typename T>
T number_of(KernelContext& ctx, const Argument& argument) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(ctx.number(argument));
  } else if constexpr (std::is_same_v<T, Bool>) {
    return ctx.number(argument) != 0 ? 1 : 0;
  } else {
    constexpr bool kIsByte = sizeof(T) == 1;
    return static_cast<T>(
        ctx.integer(argument, kIsByte ? INT8_MIN : INT32_MIN, kIsByte ? INT8_MAX : INT32_MAX));
  }
}

// A number as a tensor without dimensions, for operators that take either.
template <typename T>
class NumberTensor {
 public:
  explicit NumberTensor(T number) : number_(number) {
    tensor_.data = reinterpret_cast<uint8_t*>(&number_);
    tensor_.numel = 1;
    tensor_.nbytes = sizeof(T);
    tensor_.dtype = kDTypeOf<T>;
  }
  NumberTensor(const NumberTensor&) = delete;
  NumberTensor& operator=(const NumberTensor&) = delete;

  const Tensor& tensor() const { return tensor_; }

 private:
  T number_;
  Tensor tensor_;
};

template <typename T>
bool is_nan(T value) {
  return value != value;  // NOLINT(misc-redundant-expression)
}

// One NaN, and integers as they are.
template <typename T>
T one_result(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    return canonical_nan(value);
  } else {
    return value;
  }
}

// Refuses an `out` of another shape than `self`, or in its memory.
inline bool check_alike(KernelContext& ctx, const Tensor& self, const Tensor& out) {
  return ctx.require(same_shape(self, out), "self is ", self, ", out is ", out,
                     ": the shapes differ") &&
         ctx.require_disjoint(out, self, "self");
}

// After check_alike, whatever the dim orders.
template <typename In, typename Out, typename Compute>
void compute_alike(const Tensor& self, const Tensor& out, const Compute& compute) {
  Walk<1> walk(out);
  strides_of(self, walk.strides(0));
  for (uint32_t i = 0; i < out.numel; ++i, walk.next()) {
    out.as<Out>()[i] = compute(self.as<In>()[walk.at(0)]);
  }
}

inline bool has_sizes(const Tensor& tensor, const IntList& sizes) {
  bool same = sizes.size() == tensor.rank;
  for (uint32_t axis = 0; same && axis < tensor.rank; ++axis) {
    same = sizes[axis] == tensor.sizes[axis];
  }
  return same;
}

// Dimensions that a list names, counted from the end if negative. Records a failure where there is
// no such dimension, or one twice.
inline Axes axes_of(KernelContext& ctx, const IntList& dims, int rank) {
  Axes axes = 0;
  for (uint32_t i = 0; i < dims.size(); ++i) {
    const int64_t axis = dims[i] < 0 ? dims[i] + rank : dims[i];
    if (!ctx.require(axis >= 0 && axis < rank && (axes >> axis & 1) == 0, "dim item ", i, " is ",
                     dims[i], ": no dimension of a tensor of rank ", rank, ", or one twice")) {
      return 0;
    }
    axes |= Axes{1} << axis;
  }
  return axes;
}

template <typename T>
void fill(const Tensor& out, T value) {
  for (uint32_t i = 0; i < out.numel; ++i) out.as<T>()[i] = value;
}

}  // namespace hil::builtin
