// Reading requests and writing payloads: little-endian, bounds-checked.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/runtime.h"

namespace hil {

// Reads past the end give 0 and clear ok().
class Reader {
 public:
  Reader(const uint8_t* data, size_t size) : data_(data), left_(size) {}

  uint8_t u8() { return static_cast<uint8_t>(number(1)); }
  uint32_t u32() { return number(4); }
  Span<const uint8_t> rest();
  // A string, with a zero behind it. false: it is empty, longer than the room, or has a zero in it.
  bool str(char* text, size_t room);

  bool ok() const { return ok_; }
  // Everything was there, and nothing is left over.
  bool done() const { return ok_ && left_ == 0; }

 private:
  uint32_t number(size_t bytes);

  const uint8_t* data_;
  size_t left_;
  bool ok_ = true;
};

// Writes past the end are dropped and clear ok().
class Writer {
 public:
  Writer(uint8_t* data, size_t capacity) : data_(data), capacity_(capacity) {}

  void u8(uint8_t value) { number(value, 1); }
  void u16(uint16_t value) { number(value, 2); }
  void u32(uint32_t value) { number(value, 4); }
  void i32(int32_t value) { number(static_cast<uint32_t>(value), 4); }
  void u64(uint64_t value) { number(value, 8); }
  void str(const char* text);
  void bytes(const uint8_t* data, size_t size);
  void rewind() { size_ = 0, ok_ = true; }

  bool ok() const { return ok_; }
  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  size_t room() const { return capacity_ - size_; }

 private:
  void number(uint64_t value, size_t bytes);

  uint8_t* data_;
  size_t capacity_;
  size_t size_ = 0;
  bool ok_ = true;
};

// A response under construction: OK with a body, until something fails.
class Reply {
 public:
  Reply(uint8_t* data, size_t capacity) : body_(data, capacity) { restart(Code::kOk); }

  Writer& body() { return body_; }

  void fail(const Failure& failure);
  void fail(Code code, const char* message, uint64_t requested = 0, uint64_t available = 0);

 private:
  void restart(Code code);
  void error(int32_t instruction, uint64_t requested, uint64_t available, const char* op,
             const char* message);

  Writer body_;
};

}  // namespace hil
