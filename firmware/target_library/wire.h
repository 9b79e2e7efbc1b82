// Reading requests and writing payloads: little-endian, bounds-checked.
#ifndef HIL_WIRE_H
#define HIL_WIRE_H

#include "target_library/runtime_interface.h"

#ifdef __cplusplus
extern "C" {
#endif

// Reads past the end give 0 and clear ok.
typedef struct hil_reader {
  const uint8_t* data;
  size_t left;
  bool ok;
} hil_reader;

uint8_t hil_take_u8(hil_reader* from);
uint16_t hil_take_u16(hil_reader* from);
uint32_t hil_take_u32(hil_reader* from);
// A string, with a zero behind it. false: it is empty, longer than the room, or has a zero in it.
bool hil_take_str(hil_reader* from, char* text, size_t room);
// Everything was there, and nothing is left over.
bool hil_all_taken(const hil_reader* from);

// Writes past the end are dropped and clear ok.
typedef struct hil_writer {
  uint8_t* data;
  size_t capacity;
  size_t size;
  bool ok;
} hil_writer;

hil_writer hil_writer_of(uint8_t* data, size_t capacity);
void hil_put_u8(hil_writer* to, uint8_t value);
void hil_put_u16(hil_writer* to, uint16_t value);
void hil_put_u32(hil_writer* to, uint32_t value);
void hil_put_i32(hil_writer* to, int32_t value);
void hil_put_u64(hil_writer* to, uint64_t value);
void hil_put_bytes(hil_writer* to, const uint8_t* data, size_t size);
void hil_put_str(hil_writer* to, const char* text);
// For people: what does not fit is cut off.
void hil_put_text(hil_writer* to, const char* text);

// A response is OK with a body, until something fails. hil_fail() returns false.
void hil_begin_reply(hil_writer* reply, hil_status status);
bool hil_fail(hil_writer* reply, hil_status status, const char* message);
bool hil_fail_room(hil_writer* reply, hil_status status, const char* message, uint64_t requested,
                   uint64_t available);
void hil_fail_program(hil_writer* reply, const hil_failure* failure);

#ifdef __cplusplus
}
#endif

#endif
