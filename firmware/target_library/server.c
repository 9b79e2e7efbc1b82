#include "target_library/channels.h"
#include "target_library/framing.h"
#include "target_library/link.h"
#include "target_library/program.h"
#include "target_library/requests.h"
#include "target_library/stack.h"

enum { LOOK_MS = 10 };

static hil_decoder decoder;
static uint8_t received[HIL_TARGET_MAX_PAYLOAD];
static uint8_t payload[HIL_TARGET_MAX_PAYLOAD];

// The last response: a request that is sent again gets the same bytes again.
static uint8_t encoded[HIL_ENCODED_BOUND(HIL_TARGET_MAX_PAYLOAD)];
static size_t encoded_size = 0;
static uint16_t last_seq = 0;
static uint8_t last_type = 0;

static void dispatch(const hil_frame* request, hil_writer* reply) {
  if (request->version != HIL_PROTOCOL_VERSION) {
    hil_fail(reply, HIL_STATUS_BAD_VERSION, "another version of the protocol is spoken here");
  } else if (request->seq == 0) {
    hil_fail(reply, HIL_STATUS_BAD_REQUEST, "seq 0 belongs to events");
  } else {
    const hil_reader reader = {request->payload, request->size, true};
    hil_handle_request(request->type, request->seq, reader, reply);
  }
}

static void answer(const hil_frame* request) {
  hil_writer reply = hil_writer_of(payload, sizeof payload);
  dispatch(request, &reply);
  const hil_frame response = {HIL_PROTOCOL_VERSION, request->type | HIL_RESPONSE_BIT, request->seq,
                              reply.data, reply.size};
  last_seq = request->seq;
  last_type = request->type;
  encoded_size = hil_encode_frame(&response, encoded, sizeof encoded);
}

static void take(uint8_t byte) {
  hil_frame frame;
  if (!hil_decode(&decoder, byte, &frame) || frame.type >= HIL_FIRST_EVENT) return;
  if (encoded_size == 0 || frame.seq != last_seq || frame.type != last_type) answer(&frame);
  hil_send(encoded, encoded_size);
}

// While another thread works on a frame, this one looks up to see whether it is done.
static int receive(uint32_t milliseconds) {
  const hil_target* target = hil_used_target();
  if (target->yield == NULL || !hil_is_at_work()) {
    return hil_receive(received, sizeof received, milliseconds);
  }
  if (target->read != NULL) {
    const uint32_t look = milliseconds < LOOK_MS ? milliseconds : LOOK_MS;
    return hil_receive(received, sizeof received, look);
  }
  const int size = hil_receive(received, sizeof received, 0);
  if (size == 0) target->yield();
  return size;
}

bool hil_serve(uint32_t milliseconds) {
  hil_end_work();
  const int size = receive(milliseconds);
  for (int i = 0; i < size && !hil_host_is_gone(); ++i) take(received[i]);
  return size >= 0 && !hil_host_is_gone();
}

static bool is_aligned(hil_memory memory) { return (uintptr_t)memory.data % 16 == 0; }

static const char* problem(const hil_target* target) {
  if (target->build_id == NULL || target->configuration == NULL) {
    return "build_id or configuration is not set";
  }
  if (target->write == NULL || (target->read == NULL && target->ring.size == 0)) {
    return "write, or both of read and ring, are not set";
  }
  if (target->now != NULL && (target->tick_source == NULL || target->tick_hz == 0)) {
    return "now is set, and tick_source or tick_hz is not";
  }
  if (target->bank_count == 0 || target->bank_count > HIL_MAX_BANKS ||
      target->unplanned_bank >= target->bank_count) {
    return "bank_count is not 1 to 8, or unplanned_bank is none of them";
  }
  bool aligned =
      is_aligned(target->program) && is_aligned(target->method) && is_aligned(target->temp);
  for (size_t i = 0; i < target->bank_count; ++i) {
    aligned = aligned && is_aligned(target->banks[i].memory);
  }
  return aligned ? NULL : "program, method, temp or a bank is not aligned to 16 bytes";
}

const char* hil_target_start(const hil_target* target) {
  const char* wrong = problem(target);
  if (wrong != NULL) return wrong;
  hil_use_target(target);
  hil_fill_stack(true);
  hil_init_runtime();
  hil_send_ready();
  return NULL;
}

bool hil_target_poll(void) { return hil_serve(0); }

void hil_target_serve(void) {
  while (hil_serve(HIL_FOREVER)) {
  }
}
