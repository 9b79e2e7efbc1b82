// The interface of what executes programs inside the runner. The runner knows a runtime through it
// only; runtime/builtin and runtime/executorch implement it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "platform/protocol.h"

namespace hil {

// Why something did not work. One instance lives as long as the runtime; text is truncated to fit.
struct Failure {
  Code code = Code::kOk;
  int32_t instruction = -1;
  uint64_t requested = 0;  // bytes
  uint64_t available = 0;  // bytes
  char op[96] = {};
  char message[768] = {};
};

template <typename T>
struct Span {
  T* data = nullptr;
  size_t size = 0;
};

constexpr size_t kMaxRank = 16;

// A value as the host sees it. `data` may be written only if `writable`.
struct ValueView {
  Kind kind = Kind::kNone;
  uint8_t dtype = 0;  // ExecuTorch's ScalarType
  uint8_t rank = 0;
  bool writable = false;
  int32_t sizes[kMaxRank] = {};
  uint8_t dim_order[kMaxRank] = {};
  Span<uint8_t> data;
};

struct ProgramShape {
  uint16_t inputs = 0;
  uint16_t outputs = 0;
  uint32_t values = 0;
  uint32_t instructions = 0;
};

constexpr size_t kMaxBanks = 8;  // MAX_BANKS in harness/cortex_m_hil/targets/memory.py

// Memory for planned buffers, in a region of the board. One of the banks also `holds_unplanned`
// inputs and outputs, for which a program leaves the memory to its caller.
struct Bank {
  const char* region = "";
  Span<uint8_t> memory;
  bool holds_unplanned = false;
};

class Arenas;

class Runtime {
 public:
  // `banks` hold activations, `temp` what a kernel takes and gives back, `method` everything else
  // the runtime needs for one program, and the former too where `temp` is empty. May be called
  // again: it forgets the program.
  virtual void init(Span<const Bank> banks, Span<uint8_t> method, Span<uint8_t> temp) = 0;

  virtual const char* name() const = 0;
  virtual const char* version() const = 0;
  virtual size_t operator_count() const = 0;
  virtual const char* operator_name(size_t i) const = 0;

  // Verifies `program` (aligned to 16, stays in place until unload) and prepares its method of that
  // name; of "" its first. false: failure() says why, and no program is loaded.
  virtual bool load(Span<const uint8_t> program, const char* method) = 0;
  virtual void unload() = 0;
  virtual bool loaded() const = 0;
  virtual ProgramShape shape() const = 0;

  // Where the planned buffers of the loaded program lie.
  virtual const Arenas& arenas() const = 0;
  virtual bool value(uint32_t index, ValueView* out) = 0;
  virtual bool input(uint32_t number, ValueView* out) = 0;
  virtual bool output(uint32_t number, ValueView* out) = 0;
  // Gives an input tensor other sizes, until the next one or a load. false: failure() says why.
  virtual bool resize_input(uint32_t number, Span<const int32_t> sizes) = 0;

  // Executes the instruction at the program counter. *done is set after the last one, and the
  // counter is back at 0.
  virtual bool step(bool* done) = 0;
  virtual void rewind() = 0;
  virtual uint32_t program_counter() const = 0;
  // Name of the operator of an instruction, "" if it has none. For fault reports.
  virtual const char* instruction_operator(uint32_t instruction) const = 0;

  // Bytes at the peak: of what lives as long as the program, and of what lived for one instruction.
  virtual size_t method_used() const = 0;
  virtual size_t temp_used() const = 0;
  virtual const Failure& failure() const = 0;

 protected:
  ~Runtime() = default;
};

// The one runtime this runner was built with.
Runtime& runtime();

}  // namespace hil
