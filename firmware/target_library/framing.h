// Frames of docs/protocol.md: COBS, header, CRC-32. Pure functions and a byte-fed decoder.
#ifndef HIL_FRAMING_H
#define HIL_FRAMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "target_library/protocol.h"

#ifdef __cplusplus
extern "C" {
#endif

#if !defined(HIL_TARGET_MAX_PAYLOAD)
#define HIL_TARGET_MAX_PAYLOAD 1024  // bytes; 256 to 65536
#endif

// Bytes of version, type, seq and CRC.
#define HIL_FRAME_OVERHEAD ((size_t)8)
// Most bytes that hil_encode_frame() can need for a payload, both delimiters included.
#define HIL_ENCODED_BOUND(payload) \
  ((size_t)(payload) + HIL_FRAME_OVERHEAD + ((size_t)(payload) + HIL_FRAME_OVERHEAD) / 254 + 4)

typedef struct hil_frame {
  uint8_t version;
  uint8_t type;
  uint16_t seq;
  const uint8_t* payload;
  size_t size;
} hil_frame;

// Like zlib's crc32(): pass 0 first, and the last result to continue.
uint32_t hil_crc32(uint32_t crc, const uint8_t* data, size_t size);

// Returns the encoded size, or 0 if `capacity` is under HIL_ENCODED_BOUND(frame->size).
size_t hil_encode_frame(const hil_frame* frame, uint8_t* out, size_t capacity);

// All zero at first.
typedef struct hil_decoder {
  uint8_t data[HIL_TARGET_MAX_PAYLOAD + 8];
  size_t size;
  uint8_t left;   // bytes to come in this COBS block
  bool zero_due;  // the block ends in an implied zero
  bool bad;
} hil_decoder;

// Returns true when `byte` ends a frame with a good CRC, of whatever version. The payload stays
// valid until the next call. Anything else is dropped.
bool hil_decode(hil_decoder* decoder, uint8_t byte, hil_frame* frame);

#ifdef __cplusplus
}
#endif

#endif
