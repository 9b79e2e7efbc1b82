// The values of a program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "runtime/runtime.h"
#include "runtime/text.h"

namespace hil::builtin {

// Numbers of ExecuTorch's scalar_type.fbs. Types without a whole number of bytes per item are left
// out: no kernel here could address them.
enum class DType : uint8_t {
  kUint8 = 0,
  kInt8 = 1,
  kInt16 = 2,
  kInt32 = 3,
  kInt64 = 4,
  kFloat16 = 5,
  kFloat32 = 6,
  kFloat64 = 7,
  kBool = 11,
  kQint8 = 12,
  kQuint8 = 13,
  kQint32 = 14,
  kBfloat16 = 15,
  kBits16 = 22,
  kFloat8E5m2 = 23,
  kFloat8E4m3fn = 24,
  kFloat8E5m2fnuz = 25,
  kFloat8E4m3fnuz = 26,
  kUint16 = 27,
  kUint32 = 28,
  kUint64 = 29,
};

// Bytes of one item, which is also its alignment; 0 for a type that is not in DType.
uint32_t item_size(DType dtype);
const char* name(DType dtype);

struct Tensor {
  uint8_t* data = nullptr;  // never null once loaded; write only if `writable`
  const int32_t* sizes = nullptr;
  const uint8_t* dim_order = nullptr;  // outermost dimension first
  uint32_t numel = 0;
  uint32_t nbytes = 0;
  DType dtype = DType::kUint8;
  uint8_t rank = 0;
  bool writable = false;

  // The loader has checked size and alignment; the caller has checked the dtype.
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }

  // `axis` counts from the end if negative, as in Python.
  uint32_t size(int axis) const {
    return static_cast<uint32_t>(sizes[axis < 0 ? axis + rank : axis]);
  }
};

// "int8[1, 512]"
void append(Text& text, const Tensor& tensor);

bool same_shape(const Tensor& a, const Tensor& b);
bool same_dim_order(const Tensor& a, const Tensor& b);

// Tells whether the shapes are equal, and items of the same logical place lie at the same place in
// memory. The place of dimensions of size 1 does not matter.
bool same_layout(const Tensor& a, const Tensor& b);

// Do consecutive items of the last dimension, then of the last but one, lie one after the other?
// Dimensions of size 1 may stand anywhere.
bool is_row_major(const Tensor& tensor);
bool overlap(const Tensor& a, const Tensor& b);

// In items, one for each logical dimension.
void strides_of(const Tensor& tensor, uint32_t (&strides)[kMaxRank]);

enum class ValueType : uint8_t {
  kNone,
  kInt,
  kBool,
  kDouble,
  kTensor,
  kString,
  kIntList,
  kDoubleList,
  kBoolList,
  kTensorList,
  kOptionalTensorList,
};

const char* name(ValueType type);

struct Value {
  ValueType type = ValueType::kNone;
  bool is_input = false;
  uint32_t count = 0;  // items of a list
  union {
    int64_t integer = 0;  // Int, and Bool as 0 or not 0: the eight bytes the protocol shows
    double real;
    Tensor* tensor;
    const char* string;
    const uint8_t* items;  // in the program, perhaps unaligned: read with item()
  };

  template <typename T>
  T item(size_t i) const {
    T result;
    std::memcpy(&result, items + i * sizeof(T), sizeof(T));
    return result;
  }
};

}  // namespace hil::builtin
