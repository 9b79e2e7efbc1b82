// The interface of what executes programs in a target. runtime/builtin and runtime/executorch
// implement it; c_interface.cpp gives it to the target library, which knows a runtime by that only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "target_library/runtime_interface.h"

namespace hil {

// Why something did not work. One instance lives as long as the runtime; text is truncated to fit.
struct Failure : hil_failure {
  constexpr Failure() : hil_failure{HIL_STATUS_OK, -1, 0, 0, {}, {}} {}
};

template <typename T>
struct Span {
  T* data = nullptr;
  size_t size = 0;
};

constexpr size_t kMaxRank = HIL_MAX_RANK;

using ValueView = hil_value;  // not initialised
using ProgramShape = hil_program_shape;

constexpr size_t kMaxBanks = HIL_MAX_BANKS;

// Memory for planned buffers, in a region of the board. One of the banks also `holds_unplanned`
// inputs and outputs, for which a program leaves the memory to its caller.
struct Bank {
  const char* region = "";
  Span<uint8_t> memory;
  bool holds_unplanned = false;
};

class Arenas;

// Functions do what those of target_library/runtime_interface.h do.
class Runtime {
 public:
  virtual void init(Span<const Bank> banks, Span<uint8_t> method, Span<uint8_t> temp) = 0;

  virtual const char* name() const = 0;
  virtual const char* version() const = 0;
  virtual size_t operator_count() const = 0;
  virtual const char* operator_name(size_t i) const = 0;

  virtual bool load(Span<const uint8_t> program, const char* method) = 0;
  virtual void unload() = 0;
  virtual bool loaded() const = 0;
  virtual ProgramShape shape() const = 0;

  virtual const Arenas& arenas() const = 0;
  virtual bool value(uint32_t index, ValueView* out) = 0;
  virtual bool input(uint32_t number, ValueView* out) = 0;
  virtual bool output(uint32_t number, ValueView* out) = 0;
  virtual bool resize_input(uint32_t number, Span<const int32_t> sizes) = 0;

  virtual bool step(bool* done) = 0;
  virtual void rewind() = 0;
  virtual uint32_t program_counter() const = 0;
  virtual const char* instruction_operator(uint32_t instruction) const = 0;

  virtual size_t method_used() const = 0;
  virtual size_t temp_used() const = 0;
  virtual const Failure& failure() const = 0;

 protected:
  ~Runtime() = default;
};

// The one runtime that is linked.
Runtime& runtime();

}  // namespace hil
