#include "runtime/builtin/value.h"

namespace hil::builtin {

uint32_t item_size(DType dtype) {
  switch (dtype) {
    case DType::kUint8:
    case DType::kInt8:
    case DType::kBool:
    case DType::kQint8:
    case DType::kQuint8:
    case DType::kFloat8E5m2:
    case DType::kFloat8E4m3fn:
    case DType::kFloat8E5m2fnuz:
    case DType::kFloat8E4m3fnuz:
      return 1;
    case DType::kInt16:
    case DType::kFloat16:
    case DType::kBfloat16:
    case DType::kBits16:
    case DType::kUint16:
      return 2;
    case DType::kInt32:
    case DType::kFloat32:
    case DType::kQint32:
    case DType::kUint32:
      return 4;
    case DType::kInt64:
    case DType::kFloat64:
    case DType::kUint64:
      return 8;
  }
  return 0;
}

const char* name(DType dtype) {
  switch (dtype) {
    case DType::kUint8:
      return "uint8";
    case DType::kInt8:
      return "int8";
    case DType::kInt16:
      return "int16";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
    case DType::kFloat16:
      return "float16";
    case DType::kFloat32:
      return "float32";
    case DType::kFloat64:
      return "float64";
    case DType::kBool:
      return "bool";
    case DType::kQint8:
      return "qint8";
    case DType::kQuint8:
      return "quint8";
    case DType::kQint32:
      return "qint32";
    case DType::kBfloat16:
      return "bfloat16";
    case DType::kBits16:
      return "bits16";
    case DType::kFloat8E5m2:
      return "float8_e5m2";
    case DType::kFloat8E4m3fn:
      return "float8_e4m3fn";
    case DType::kFloat8E5m2fnuz:
      return "float8_e5m2fnuz";
    case DType::kFloat8E4m3fnuz:
      return "float8_e4m3fnuz";
    case DType::kUint16:
      return "uint16";
    case DType::kUint32:
      return "uint32";
    case DType::kUint64:
      return "uint64";
  }
  return "unknown dtype";
}

const char* name(ValueType type) {
  switch (type) {
    case ValueType::kNone:
      return "None";
    case ValueType::kInt:
      return "Int";
    case ValueType::kBool:
      return "Bool";
    case ValueType::kDouble:
      return "Double";
    case ValueType::kTensor:
      return "Tensor";
    case ValueType::kString:
      return "String";
    case ValueType::kIntList:
      return "IntList";
    case ValueType::kDoubleList:
      return "DoubleList";
    case ValueType::kBoolList:
      return "BoolList";
    case ValueType::kTensorList:
      return "TensorList";
    case ValueType::kOptionalTensorList:
      return "OptionalTensorList";
  }
  return "unknown type";
}

void append(Text& text, const Tensor& tensor) {
  text.add(name(tensor.dtype), "[");
  for (int axis = 0; axis < tensor.rank; ++axis) {
    text.add(axis == 0 ? "" : ", ", tensor.size(axis));
  }
  text.add("]");
}

bool same_shape(const Tensor& a, const Tensor& b) {
  if (a.rank != b.rank) return false;
  for (int axis = 0; axis < a.rank; ++axis) {
    if (a.size(axis) != b.size(axis)) return false;
  }
  return true;
}

bool same_dim_order(const Tensor& a, const Tensor& b) {
  if (a.rank != b.rank) return false;
  for (int i = 0; i < a.rank; ++i) {
    if (a.dim_order[i] != b.dim_order[i]) return false;
  }
  return true;
}

bool same_layout(const Tensor& a, const Tensor& b) {
  if (!same_shape(a, b)) return false;
  uint32_t a_strides[kMaxRank] = {};
  uint32_t b_strides[kMaxRank] = {};
  strides_of(a, a_strides);
  strides_of(b, b_strides);
  for (int axis = 0; axis < a.rank; ++axis) {
    if (a.size(axis) != 1 && a_strides[axis] != b_strides[axis]) return false;
  }
  return true;
}

bool is_row_major(const Tensor& tensor) {
  int previous = -1;
  for (int i = 0; i < tensor.rank; ++i) {
    const int dim = tensor.dim_order[i];
    if (tensor.size(dim) == 1) continue;
    if (dim < previous) return false;
    previous = dim;
  }
  return true;
}

bool overlap(const Tensor& a, const Tensor& b) {
  const uintptr_t a_start = reinterpret_cast<uintptr_t>(a.data);
  const uintptr_t b_start = reinterpret_cast<uintptr_t>(b.data);
  return a.nbytes != 0 && b.nbytes != 0 && a_start < b_start + b.nbytes &&
         b_start < a_start + a.nbytes;
}

void strides_of(const Tensor& tensor, uint32_t (&strides)[kMaxRank]) {
  uint32_t stride = 1;
  for (int i = tensor.rank - 1; i >= 0; --i) {
    const int dim = tensor.dim_order[i];
    strides[dim] = stride;
    stride *= tensor.size(dim);
  }
}

}  // namespace hil::builtin
