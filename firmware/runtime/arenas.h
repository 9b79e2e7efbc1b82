// Where the planned buffers of a program lie in the banks. With one bank they lie there one after
// the other; with several, buffer i in bank i - 1 (docs/protocol.md). Behind them lie the inputs
// and outputs without a plan, in the bank that holds these.
#pragma once

#include "runtime/runtime.h"

namespace hil {

class Arenas {
 public:
  void init(Span<const Bank> banks);
  void clear();  // forgets the buffers

  // Adds a buffer, counted from 1, and returns where it begins in its bank. Whether there is room
  // for all of them `complete` tells.
  uint32_t add(uint32_t buffer, uint64_t size);
  // Adds an input or output without a plan, and returns it; nullptr where there is no room.
  uint8_t* add_unplanned(uint64_t size);
  // false after the reason was put into `failure`.
  bool complete(Failure* failure) const;

  // A byte of a bank that a buffer lies in; nullptr where there is none.
  uint8_t* at(uint32_t buffer, uint64_t offset) const;
  bool contains(const uint8_t* data) const;

  size_t banks() const { return count_; }
  Span<uint8_t> bank(size_t number) const { return banks_[number].memory; }
  // The bytes of a bank that buffers take, from its start, once they are complete.
  Span<uint8_t> planned(size_t number) const {
    return {banks_[number].memory.data, static_cast<size_t>(used_[number])};
  }
  size_t planned_bytes() const;

 private:
  size_t bank_of(uint32_t buffer) const { return count_ == 1 ? 0 : buffer - 1; }
  uint64_t take(size_t number, uint64_t size);

  Bank banks_[kMaxBanks];
  size_t count_ = 0;
  uint64_t used_[kMaxBanks] = {};
  uint32_t missing_ = 0;  // the first buffer for which there is no bank
  uint64_t missing_size_ = 0;
};

}  // namespace hil
