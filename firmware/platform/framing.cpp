#include "platform/framing.h"

namespace {

struct CrcTable {
  uint32_t entry[256] = {};
  constexpr CrcTable() {
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ ((c & 1) != 0 ? 0xEDB88320u : 0);
      entry[i] = c;
    }
  }
};

constexpr CrcTable kCrcTable;

uint32_t le32(const uint8_t* p) {
  return p[0] | static_cast<uint32_t>(p[1]) << 8 | static_cast<uint32_t>(p[2]) << 16 |
         static_cast<uint32_t>(p[3]) << 24;
}

// The caller vouches for the room.
class CobsEncoder {
 public:
  explicit CobsEncoder(uint8_t* out) : out_(out) {
    out_[size_++] = 0;
    open_block();
  }

  void put(uint8_t byte) {
    if (byte != 0) {
      out_[size_++] = byte;
      ++code_;
    }
    if (byte == 0 || code_ == 0xFF) {
      out_[code_at_] = code_;
      open_block();
    }
  }

  void put(const uint8_t* data, size_t size) {
    for (size_t i = 0; i < size; ++i) put(data[i]);
  }

  size_t finish() {
    out_[code_at_] = code_;
    out_[size_++] = 0;
    return size_;
  }

 private:
  void open_block() {
    code_at_ = size_++;
    code_ = 1;
  }

  uint8_t* out_;
  size_t size_ = 0;
  size_t code_at_ = 0;
  uint8_t code_ = 1;
};

}  // namespace

namespace hil {

uint32_t crc32(const uint8_t* data, size_t size, uint32_t crc) {
  crc = ~crc;
  for (size_t i = 0; i < size; ++i) crc = kCrcTable.entry[(crc ^ data[i]) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

size_t encode_frame(const Frame& frame, uint8_t* out, size_t capacity) {
  if (frame.size > kMaxPayload || capacity < encoded_bound(frame.size)) return 0;
  const uint8_t header[] = {frame.version, frame.type, static_cast<uint8_t>(frame.seq),
                            static_cast<uint8_t>(frame.seq >> 8)};
  const uint32_t crc = crc32(frame.payload, frame.size, crc32(header, sizeof header));
  CobsEncoder encoder(out);
  encoder.put(header, sizeof header);
  encoder.put(frame.payload, frame.size);
  for (int shift = 0; shift < 32; shift += 8) encoder.put(static_cast<uint8_t>(crc >> shift));
  return encoder.finish();
}

bool FrameDecoder::feed(uint8_t byte, Frame* frame) {
  if (byte == 0) {
    const bool good = finish(frame);
    restart();
    return good;
  }
  if (left_ > 0) {
    push(byte);
    --left_;
  } else {
    if (zero_due_) push(0);
    left_ = static_cast<uint8_t>(byte - 1);
    zero_due_ = byte != 0xFF;
  }
  return false;
}

void FrameDecoder::push(uint8_t byte) {
  if (size_ == sizeof data_) {
    bad_ = true;
  } else {
    data_[size_++] = byte;
  }
}

bool FrameDecoder::finish(Frame* frame) const {
  if (bad_ || left_ != 0 || size_ < kFrameOverhead) return false;
  if (crc32(data_, size_ - 4) != le32(data_ + size_ - 4)) return false;
  frame->version = data_[0];
  frame->type = data_[1];
  frame->seq = static_cast<uint16_t>(data_[2] | data_[3] << 8);
  frame->payload = data_ + 4;
  frame->size = size_ - kFrameOverhead;
  return true;
}

void FrameDecoder::restart() {
  size_ = 0;
  left_ = 0;
  zero_due_ = false;
  bad_ = false;
}

}  // namespace hil
