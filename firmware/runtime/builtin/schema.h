// The generated view of a .pte, and the few ways it is read.
#pragma once

#include <cstdint>
#include <cstring>

// FlatBuffers asserts what its verifier has already checked, so a failure means a bug of ours: stop
// in the fault handler, which reports where. The default would pull assert()'s printing in.
#define FLATBUFFERS_ASSERT(condition) ((condition) ? static_cast<void>(0) : __builtin_trap())
#if HIL_RUNTIME_EXECUTORCH
// FlatBuffers' headers are of our flatc's version here and of ExecuTorch's own in its libraries:
// without other names the linker would mix their inline functions.
#define flatbuffers hil_flatbuffers
#define executorch_flatbuffer hil_schema
#endif
#include "program_generated.h"

namespace hil::builtin {

namespace schema = executorch_flatbuffer;

template <typename T>
uint32_t count_of(const flatbuffers::Vector<T>* vector) {
  return vector == nullptr ? 0 : vector->size();
}

// The verifier aligns a vector's length, not its items: int64 and double need the memcpy.
template <typename T>
T item_of(const flatbuffers::Vector<T>* vector, uint32_t i) {
  T result;
  std::memcpy(&result, vector->Data() + size_t{i} * sizeof(T), sizeof(T));
  return result;
}

inline const char* text_of(const flatbuffers::String* string) {
  return string == nullptr ? "" : string->c_str();
}

}  // namespace hil::builtin
