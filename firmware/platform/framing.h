// Frames of docs/protocol.md: COBS, header, CRC-32. Pure functions and a byte-fed decoder.
#pragma once

#include <cstddef>
#include <cstdint>

#include "platform/protocol.h"

namespace hil {

#if !defined(HIL_MAX_PAYLOAD)
#define HIL_MAX_PAYLOAD 4096
#endif
constexpr size_t kMaxPayload = HIL_MAX_PAYLOAD;
constexpr size_t kFrameOverhead = 8;  // version, type, seq, crc

struct Frame {
  uint8_t version = kProtocolVersion;
  uint8_t type = 0;
  uint16_t seq = 0;
  const uint8_t* payload = nullptr;
  size_t size = 0;
};

// Like zlib's crc32(): pass the last result as `crc` to continue.
uint32_t crc32(const uint8_t* data, size_t size, uint32_t crc = 0);

// Most bytes encode_frame() can need for a payload, both delimiters included.
constexpr size_t encoded_bound(size_t payload) {
  const size_t raw = payload + kFrameOverhead;
  return raw + raw / 254 + 4;
}

// Returns the encoded size, or 0 if `capacity` is under encoded_bound(frame.size).
size_t encode_frame(const Frame& frame, uint8_t* out, size_t capacity);

class FrameDecoder {
 public:
  // True when `byte` ends a frame with a good CRC, of whatever version. The payload stays valid
  // until the next call. Anything else is dropped.
  bool feed(uint8_t byte, Frame* frame);

 private:
  void push(uint8_t byte);
  bool finish(Frame* frame) const;
  void restart();

  uint8_t data_[kMaxPayload + kFrameOverhead];
  size_t size_ = 0;
  uint8_t left_ = 0;       // bytes to come in this COBS block
  bool zero_due_ = false;  // the block ends in an implied zero
  bool bad_ = false;
};

}  // namespace hil
