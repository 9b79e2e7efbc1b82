#include "runtime/arenas.h"

#include "runtime/failure.h"

namespace hil {

namespace {

constexpr uint64_t kAlignment = 16;
constexpr uint64_t kFarTooMuch = uint64_t{1} << 62;

}  // namespace

void Arenas::init(Span<const Bank> banks) {
  count_ = banks.size < kMaxBanks ? banks.size : kMaxBanks;
  for (size_t i = 0; i < count_; ++i) banks_[i] = banks.data[i];
  clear();
}

void Arenas::clear() {
  for (uint64_t& used : used_) used = 0;
  missing_ = 0;
}

uint32_t Arenas::add(uint32_t buffer, uint64_t size) {
  const size_t number = bank_of(buffer);
  if (number >= count_) {
    if (size > 0 && missing_ == 0) {
      missing_ = buffer;
      missing_size_ = size;
    }
    return 0;
  }
  return static_cast<uint32_t>(take(number, size));
}

uint64_t Arenas::take(size_t number, uint64_t size) {
  const uint64_t start = used_[number];
  // Sizes near 2^63 must not wrap the sum.
  if (start < kFarTooMuch) used_[number] += (size + kAlignment - 1) / kAlignment * kAlignment;
  return start;
}

uint8_t* Arenas::add_unplanned(uint64_t size) {
  size_t number = 0;
  for (size_t i = 0; i < count_; ++i) {
    if (banks_[i].holds_unplanned) number = i;
  }
  const uint64_t start = take(number, size);
  const bool fits = used_[number] <= banks_[number].memory.size;
  return fits ? banks_[number].memory.data + static_cast<size_t>(start) : nullptr;
}

bool Arenas::complete(Failure* failure) const {
  if (missing_ != 0) {
    report(failure, HIL_STATUS_OUT_OF_MEMORY, "planned buffer ", missing_,
           " has no bank: the target has ", count_);
    failure->requested = missing_size_;
    return false;
  }
  for (size_t i = 0; i < count_; ++i) {
    const Bank& bank = banks_[i];
    if (used_[i] <= bank.memory.size) continue;
    const char* region = count_ == 1 ? nullptr : bank.region;
    return out_of_memory(failure, "planned", used_[i], bank.memory.size, region);
  }
  return true;
}

uint8_t* Arenas::at(uint32_t buffer, uint64_t offset) const {
  const size_t number = bank_of(buffer);
  if (number >= count_ || offset > banks_[number].memory.size) return nullptr;
  return banks_[number].memory.data + static_cast<size_t>(offset);
}

bool Arenas::contains(const uint8_t* data) const {
  for (size_t i = 0; i < count_; ++i) {
    const uint8_t* begin = banks_[i].memory.data;
    if (data >= begin && data < begin + used_[i]) return true;
  }
  return false;
}

size_t Arenas::planned_bytes() const {
  uint64_t sum = 0;
  for (size_t i = 0; i < count_; ++i) sum += used_[i];
  return static_cast<size_t>(sum);
}

}  // namespace hil
