#include "target_library/framing.h"

// A CRC is linear: the entry of a byte is the sum of those of its bits.
#define BIT_OF(byte, bit, entry) (((byte) >> (bit)&1) != 0 ? (entry) : 0)
#define CRC_OF(byte)                                                                            \
  (BIT_OF(byte, 0, 0x77073096u) ^ BIT_OF(byte, 1, 0xEE0E612Cu) ^ BIT_OF(byte, 2, 0x076DC419u) ^ \
   BIT_OF(byte, 3, 0x0EDB8832u) ^ BIT_OF(byte, 4, 0x1DB71064u) ^ BIT_OF(byte, 5, 0x3B6E20C8u) ^ \
   BIT_OF(byte, 6, 0x76DC4190u) ^ BIT_OF(byte, 7, 0xEDB88320u))
#define CRC_OF_4(byte) CRC_OF(byte), CRC_OF((byte) + 1), CRC_OF((byte) + 2), CRC_OF((byte) + 3)
#define CRC_OF_16(byte) \
  CRC_OF_4(byte), CRC_OF_4((byte) + 4), CRC_OF_4((byte) + 8), CRC_OF_4((byte) + 12)
#define CRC_OF_64(byte) \
  CRC_OF_16(byte), CRC_OF_16((byte) + 16), CRC_OF_16((byte) + 32), CRC_OF_16((byte) + 48)

static const uint32_t crc_table[256] = {CRC_OF_64(0), CRC_OF_64(64), CRC_OF_64(128),
                                        CRC_OF_64(192)};

static uint32_t le32(const uint8_t* p) {
  return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

// The caller vouches for the room.
typedef struct encoder {
  uint8_t* out;
  size_t size;
  size_t code_at;
  uint8_t code;
} encoder;

static void open_block(encoder* to) {
  to->code_at = to->size++;
  to->code = 1;
}

static void put_byte(encoder* to, uint8_t byte) {
  if (byte != 0) {
    to->out[to->size++] = byte;
    ++to->code;
  }
  if (byte == 0 || to->code == 0xFF) {
    to->out[to->code_at] = to->code;
    open_block(to);
  }
}

static void put_bytes(encoder* to, const uint8_t* data, size_t size) {
  for (size_t i = 0; i < size; ++i) put_byte(to, data[i]);
}

uint32_t hil_crc32(uint32_t crc, const uint8_t* data, size_t size) {
  crc = ~crc;
  for (size_t i = 0; i < size; ++i) crc = crc_table[(crc ^ data[i]) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

size_t hil_encode_frame(const hil_frame* frame, uint8_t* out, size_t capacity) {
  if (frame->size > HIL_TARGET_MAX_PAYLOAD || capacity < HIL_ENCODED_BOUND(frame->size)) return 0;
  const uint8_t header[] = {frame->version, frame->type, (uint8_t)frame->seq,
                            (uint8_t)(frame->seq >> 8)};
  const uint32_t crc = hil_crc32(hil_crc32(0, header, sizeof header), frame->payload, frame->size);
  encoder to = {out, 0, 0, 1};
  out[to.size++] = 0;
  open_block(&to);
  put_bytes(&to, header, sizeof header);
  put_bytes(&to, frame->payload, frame->size);
  for (int shift = 0; shift < 32; shift += 8) put_byte(&to, (uint8_t)(crc >> shift));
  out[to.code_at] = to.code;
  out[to.size++] = 0;
  return to.size;
}

static void push(hil_decoder* decoder, uint8_t byte) {
  if (decoder->size == sizeof decoder->data) {
    decoder->bad = true;
  } else {
    decoder->data[decoder->size++] = byte;
  }
}

static bool finish(const hil_decoder* decoder, hil_frame* frame) {
  const uint8_t* data = decoder->data;
  const size_t size = decoder->size;
  if (decoder->bad || decoder->left != 0 || size < HIL_FRAME_OVERHEAD) return false;
  if (hil_crc32(0, data, size - 4) != le32(data + size - 4)) return false;
  frame->version = data[0];
  frame->type = data[1];
  frame->seq = (uint16_t)(data[2] | data[3] << 8);
  frame->payload = data + 4;
  frame->size = size - HIL_FRAME_OVERHEAD;
  return true;
}

static void restart(hil_decoder* decoder) {
  decoder->size = 0;
  decoder->left = 0;
  decoder->zero_due = false;
  decoder->bad = false;
}

bool hil_decode(hil_decoder* decoder, uint8_t byte, hil_frame* frame) {
  if (byte == 0) {
    const bool good = finish(decoder, frame);
    restart(decoder);
    return good;
  }
  if (decoder->left > 0) {
    push(decoder, byte);
    --decoder->left;
  } else {
    if (decoder->zero_due) push(decoder, 0);
    decoder->left = (uint8_t)(byte - 1);
    decoder->zero_due = byte != 0xFF;
  }
  return false;
}
