#include "target_library/link.h"

#include "target_library/framing.h"
#include "target_library/program.h"

enum { MAX_EVENT = HIL_TARGET_MAX_PAYLOAD < 1024 ? HIL_TARGET_MAX_PAYLOAD : 1024 };

static const hil_target* in_use = NULL;

static const hil_texts* texts = NULL;
static bool is_ready = false;
static bool is_gone = false;

// Events have buffers of their own: a fault may occur while a response is being put together.
static uint8_t payload[MAX_EVENT];
static uint8_t encoded[HIL_ENCODED_BOUND(MAX_EVENT)];
static size_t encoded_size = 0;

// --- bytes ---------------------------------------------------------------------------------------

// Places in the ring go up to twice its size, so that an empty ring and a full one differ.
static volatile uint32_t head = 0;  // written by hil_target_received() only
static volatile uint32_t tail = 0;

static size_t in_ring(void) {
  const size_t from = tail;
  const size_t to = head;
  return to >= from ? to - from : to + 2 * in_use->ring.size - from;
}

static volatile uint8_t* ring_at(size_t place) {
  const hil_memory ring = in_use->ring;
  return ring.data + (place < ring.size ? place : place - ring.size);
}

static uint32_t after(size_t place) {
  return (uint32_t)(place + 1 == 2 * in_use->ring.size ? 0 : place + 1);
}

void hil_target_received(const uint8_t* bytes, size_t size) {
  if (in_use == NULL) return;
  for (size_t i = 0; i < size && in_ring() < in_use->ring.size; ++i) {
    *ring_at(head) = bytes[i];
    head = after(head);
  }
}

bool hil_target_has_received(void) { return in_ring() != 0; }

int hil_receive(uint8_t* bytes, size_t room, uint32_t milliseconds) {
  if (in_use->read != NULL) return in_use->read(bytes, room, milliseconds);
  while (in_ring() == 0) {
    if (milliseconds == 0) return 0;
    if (in_use->wait != NULL) in_use->wait();
  }
  int count = 0;
  while ((size_t)count < room && in_ring() != 0) {
    bytes[count++] = *ring_at(tail);
    tail = after(tail);
  }
  return count;
}

void hil_send(const uint8_t* frame, size_t size) {
  if (!in_use->write(frame, size)) is_gone = true;
}

bool hil_host_is_gone(void) { return is_gone; }

void hil_use_target(const hil_target* target) { in_use = target; }

const hil_target* hil_used_target(void) { return in_use; }

void hil_use_texts(const hil_texts* used) { texts = used; }

// --- events --------------------------------------------------------------------------------------

static hil_writer body(void) { return hil_writer_of(payload, sizeof payload); }

static void encode(hil_event type, const hil_writer* event) {
  const hil_frame frame = {HIL_PROTOCOL_VERSION, (uint8_t)type, 0, event->data, event->size};
  encoded_size = hil_encode_frame(&frame, encoded, sizeof encoded);
}

static void send(hil_event type, const hil_writer* event) {
  encode(type, event);
  hil_send(encoded, encoded_size);
}

void hil_send_ready(void) {
  is_ready = true;
  hil_writer event = body();
  hil_put_str(&event, in_use->build_id);
  send(HIL_EVENT_READY, &event);
}

static void send_number(hil_event type, uint32_t number) {
  hil_writer event = body();
  hil_put_u32(&event, number);
  send(type, &event);
}

void hil_send_progress(uint32_t instruction) { send_number(HIL_EVENT_PROGRESS, instruction); }

void hil_send_waiting(uint32_t frame) { send_number(HIL_EVENT_WAITING, frame); }

static void send_log(hil_log_level level, const char* text) {
  if (texts != NULL) {
    texts->log(level, text);
    return;
  }
  hil_writer event = body();
  hil_put_u8(&event, (uint8_t)level);
  hil_put_text(&event, text);
  send(HIL_EVENT_LOG, &event);
}

void hil_target_log(hil_log_level level, const char* text) {
  if (is_ready || texts != NULL) send_log(level, text);
}

static void send_fault(const hil_fault_record* fault) {
  if (texts != NULL) {
    texts->fault(fault);
    return;
  }
  hil_writer event = body();
  hil_put_i32(&event, hil_current_instruction());
  hil_put_u32(&event, fault->exception);
  hil_put_u8(&event, fault->has_status ? 1 : 0);
  hil_put_u32(&event, fault->cfsr);
  hil_put_u32(&event, fault->hfsr);
  hil_put_u32(&event, fault->mmfar);
  hil_put_u32(&event, fault->bfar);
  for (size_t i = 0; i < sizeof fault->frame / sizeof fault->frame[0]; ++i) {
    hil_put_u32(&event, fault->frame[i]);
  }
  hil_put_u32(&event, fault->sp);
  hil_put_str(&event, hil_current_operator());
  send(HIL_EVENT_FAULT, &event);
}

// --- the end -------------------------------------------------------------------------------------

// The last event, and that the firmware has ended, whenever the host ends a frame: on a lossy link
// they may not have arrived the first time.
static void tell_again_and_again(int status) {
  const uint8_t code = (uint8_t)status;
  const hil_frame frame = {HIL_PROTOCOL_VERSION, HIL_EVENT_ENDED, 0, &code, sizeof code};
  uint8_t ended[HIL_ENCODED_BOUND(sizeof code)];
  const size_t size = hil_encode_frame(&frame, ended, sizeof ended);
  hil_send(ended, size);
  for (;;) {
    uint8_t byte;
    if (hil_receive(&byte, sizeof byte, HIL_FOREVER) <= 0 || byte != 0) continue;
    hil_send(encoded, encoded_size);
    hil_send(ended, size);
  }
}

static HIL_NORETURN void end(int status) {
  if (in_use->end != NULL) in_use->end(status);
  for (;;) tell_again_and_again(status);
}

void hil_target_fatal(const char* what) {
  if (in_use == NULL) {
    for (;;) {  // nobody to tell
    }
  }
  send_log(HIL_LOG_ERROR, what);
  end(HIL_EXIT_FATAL);
}

void hil_end_with_fault(const hil_fault_record* fault) {
  static volatile bool reporting = false;
  if (!reporting) {
    reporting = true;
    send_fault(fault);
  }
  end(HIL_EXIT_FAULT);
}
