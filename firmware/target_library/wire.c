#include "target_library/wire.h"

#include <string.h>

static bool all_gone(hil_reader* from) {
  from->ok = false;
  from->left = 0;
  return false;
}

static uint32_t take(hil_reader* from, size_t bytes) {
  if (from->left < bytes) return all_gone(from);
  uint32_t value = 0;
  for (size_t i = 0; i < bytes; ++i) value |= (uint32_t)from->data[i] << (8 * i);
  from->data += bytes;
  from->left -= bytes;
  return value;
}

uint8_t hil_take_u8(hil_reader* from) { return (uint8_t)take(from, sizeof(uint8_t)); }

uint16_t hil_take_u16(hil_reader* from) { return (uint16_t)take(from, sizeof(uint16_t)); }

uint32_t hil_take_u32(hil_reader* from) { return take(from, sizeof(uint32_t)); }

bool hil_take_str(hil_reader* from, char* text, size_t room) {
  const size_t length = take(from, sizeof(uint16_t));
  text[0] = 0;
  if (length > from->left) return all_gone(from);
  const uint8_t* bytes = from->data;
  from->data += length;
  from->left -= length;
  if (length == 0 || length >= room || memchr(bytes, 0, length) != NULL) return false;
  memcpy(text, bytes, length);
  text[length] = 0;
  return true;
}

bool hil_all_taken(const hil_reader* from) { return from->ok && from->left == 0; }

hil_writer hil_writer_of(uint8_t* data, size_t capacity) {
  const hil_writer made = {data, capacity, 0, true};
  return made;
}

void hil_put_bytes(hil_writer* to, const uint8_t* data, size_t size) {
  if (!to->ok || size > to->capacity - to->size) {
    to->ok = false;
    return;
  }
  if (size > 0) memcpy(to->data + to->size, data, size);
  to->size += size;
}

static void put(hil_writer* to, uint64_t value, size_t bytes) {
  uint8_t le[sizeof value];
  for (size_t i = 0; i < bytes; ++i) le[i] = (uint8_t)(value >> (8 * i));
  hil_put_bytes(to, le, bytes);
}

void hil_put_u8(hil_writer* to, uint8_t value) { put(to, value, sizeof value); }

void hil_put_u16(hil_writer* to, uint16_t value) { put(to, value, sizeof value); }

void hil_put_u32(hil_writer* to, uint32_t value) { put(to, value, sizeof value); }

void hil_put_i32(hil_writer* to, int32_t value) { put(to, (uint32_t)value, sizeof value); }

void hil_put_u64(hil_writer* to, uint64_t value) { put(to, value, sizeof value); }

static void put_str(hil_writer* to, const char* text, size_t length) {
  hil_put_u16(to, (uint16_t)length);
  hil_put_bytes(to, (const uint8_t*)text, length);
}

void hil_put_str(hil_writer* to, const char* text) {
  const size_t length = strlen(text);
  if (length > UINT16_MAX) {
    to->ok = false;
    return;
  }
  put_str(to, text, length);
}

void hil_put_text(hil_writer* to, const char* text) {
  const size_t length = strlen(text);
  const size_t left = to->capacity - to->size;
  size_t room = left > sizeof(uint16_t) ? left - sizeof(uint16_t) : 0;
  if (room > UINT16_MAX) room = UINT16_MAX;
  put_str(to, text, length < room ? length : room);
}

void hil_begin_reply(hil_writer* reply, hil_status status) {
  reply->size = 0;
  reply->ok = true;
  hil_put_u16(reply, (uint16_t)status);
}

static void fail(hil_writer* reply, hil_status status, int32_t instruction, uint64_t requested,
                 uint64_t available, const char* op, const char* message) {
  hil_begin_reply(reply, status);
  hil_put_i32(reply, instruction);
  hil_put_u64(reply, requested);
  hil_put_u64(reply, available);
  hil_put_str(reply, op);
  hil_put_text(reply, message);
}

bool hil_fail(hil_writer* reply, hil_status status, const char* message) {
  return hil_fail_room(reply, status, message, 0, 0);
}

bool hil_fail_room(hil_writer* reply, hil_status status, const char* message, uint64_t requested,
                   uint64_t available) {
  fail(reply, status, -1, requested, available, "", message);
  return false;
}

void hil_fail_program(hil_writer* reply, const hil_failure* failure) {
  fail(reply, failure->code, failure->instruction, failure->requested, failure->available,
       failure->op, failure->message);
}
