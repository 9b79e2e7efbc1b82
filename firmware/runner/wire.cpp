#include "runner/wire.h"

#include <cstring>

namespace hil {

uint32_t Reader::number(size_t bytes) {
  if (left_ < bytes) {
    ok_ = false;
    left_ = 0;
    return 0;
  }
  uint32_t value = 0;
  for (size_t i = 0; i < bytes; ++i) value |= static_cast<uint32_t>(data_[i]) << (8 * i);
  data_ += bytes;
  left_ -= bytes;
  return value;
}

Span<const uint8_t> Reader::rest() {
  const Span<const uint8_t> all{data_, left_};
  data_ += left_;
  left_ = 0;
  return all;
}

bool Reader::str(char* text, size_t room) {
  const size_t length = number(sizeof(uint16_t));
  text[0] = 0;
  if (length > left_) {
    ok_ = false;
    left_ = 0;
    return false;
  }
  const uint8_t* bytes = data_;
  data_ += length;
  left_ -= length;
  if (length == 0 || length >= room || std::memchr(bytes, 0, length) != nullptr) return false;
  std::memcpy(text, bytes, length);
  text[length] = 0;
  return true;
}

void Writer::number(uint64_t value, size_t bytes) {
  uint8_t le[8];
  for (size_t i = 0; i < bytes; ++i) le[i] = static_cast<uint8_t>(value >> (8 * i));
  this->bytes(le, bytes);
}

void Writer::bytes(const uint8_t* data, size_t size) {
  if (!ok_ || size > room()) {
    ok_ = false;
    return;
  }
  if (size > 0) std::memcpy(data_ + size_, data, size);
  size_ += size;
}

void Writer::str(const char* text) {
  const size_t length = std::strlen(text);
  if (length > 0xFFFF) {
    ok_ = false;
    return;
  }
  u16(static_cast<uint16_t>(length));
  bytes(reinterpret_cast<const uint8_t*>(text), length);
}

void Reply::restart(Code code) {
  body_.rewind();
  body_.u16(static_cast<uint16_t>(code));
}

void Reply::error(int32_t instruction, uint64_t requested, uint64_t available, const char* op,
                  const char* message) {
  body_.i32(instruction);
  body_.u64(requested);
  body_.u64(available);
  body_.str(op);
  body_.str(message);
}

void Reply::fail(const Failure& failure) {
  restart(failure.code);
  error(failure.instruction, failure.requested, failure.available, failure.op, failure.message);
}

void Reply::fail(Code code, const char* message, uint64_t requested, uint64_t available) {
  restart(code);
  error(-1, requested, available, "", message);
}

}  // namespace hil
