#include "target_library/channels.h"

#if HIL_CHANNELS

#include <string.h>

#include "target_library/link.h"
#include "target_library/requests.h"

// One thread passes the points, and one, mostly the same, serves. Each word below is written by one
// of them: by the one that serves `attached`, `held`, `given`, the `head` of inputs and the `tail`
// of outputs; the rest by the other, but for `taken` as a session begins. A release makes what was
// written before visible with it.
static hil_channel_state* first = NULL;
static hil_channel_state* last = NULL;
static uint32_t count = 0;
static uint32_t taken = 0;  // the host's number of the frame that an input took last
static uint64_t taken_at = 0;
static uint32_t worked_on = 0;  // the frame that was given last, until the host was told; 0: none

static uint32_t get(const uint32_t* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

static void set(uint32_t* word, uint32_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }

static bool is_input(const hil_channel_state* state) { return state->channel->stamps == NULL; }

static uint32_t queued(const hil_channel_state* state) {
  return get(&state->head) - get(&state->tail);
}

// --- the firmware's side -------------------------------------------------------------------------

static uint64_t now(void) {
  const hil_target* target = hil_used_target();
  return target->now != NULL ? target->now() : 0;
}

static uint64_t since(uint64_t begin) {
  const hil_target* target = hil_used_target();
  return target->since != NULL ? target->since(begin) : now() - begin;
}

static void enlist(const hil_channel* channel, hil_channel_state* state) {
  if (state->channel != NULL) return;
  state->channel = channel;
  if (last != NULL) {
    last->next = state;
  } else {
    first = state;
  }
  last = state;
  set(&count, count + 1);
}

static void wait_for_frame(hil_channel_state* state) {
  const hil_target* target = hil_used_target();
  set(&state->waiting, 1);
  while (get(&state->attached) != 0 && queued(state) == 0) {
    if (target->yield != NULL) {
      target->yield();
    } else if (!hil_serve(HIL_FOREVER)) {
      break;
    }
  }
  set(&state->waiting, 0);
}

void hil_pass_input(const hil_channel* channel, hil_channel_state* state, void* buffer) {
  if (hil_used_target() == NULL) return;
  enlist(channel, state);
  wait_for_frame(state);
  if (queued(state) == 0) return;
  if (get(&state->attached) != 0) {
    memcpy(buffer, channel->frames, channel->bytes);
    taken_at = now();
    set(&taken, state->given);
    set(&state->total, state->total + 1);
  }
  set(&state->tail, get(&state->head));  // what came before the host has left is dropped
}

void hil_pass_output(const hil_channel* channel, hil_channel_state* state, const void* buffer) {
  if (hil_used_target() == NULL) return;
  enlist(channel, state);
  const uint32_t number = state->total + 1;
  if (get(&state->attached) != 0 && queued(state) < channel->depth) {
    const uint32_t slot = state->head & (channel->depth - 1);
    const hil_stamp stamp = {number, get(&taken), now(), taken != 0 ? since(taken_at) : 0};
    memcpy(channel->frames + slot * channel->bytes, buffer, channel->bytes);
    channel->stamps[slot] = stamp;
    set(&state->head, state->head + 1);
  }
  set(&state->total, number);
}

// --- the host's side -----------------------------------------------------------------------------

static hil_channel_state* find(uint32_t index) {
  if (index >= get(&count)) return NULL;
  hil_channel_state* state = first;
  for (uint32_t i = 0; i < index; ++i) state = state->next;
  return state;
}

void hil_list_channels(hil_reader* request, uint16_t seq, hil_writer* reply) {
  (void)seq;
  const uint32_t begin = hil_take_u32(request);
  const uint32_t room = hil_take_u32(request);
  if (!hil_complete(request, reply)) return;
  const uint32_t total = get(&count);
  hil_put_u32(reply, total);
  size_t used = 0;
  for (uint32_t i = begin; i < total; ++i) {
    const hil_channel_state* state = find(i);
    const size_t size = 1 + 1 + 4 + 2 + strlen(state->channel->name);
    used += size;
    if (used > room || size > reply->capacity - reply->size) return;
    hil_put_u8(reply, is_input(state) ? HIL_DIRECTION_INPUT : HIL_DIRECTION_OUTPUT);
    hil_put_u8(reply, state->channel->element);
    hil_put_u32(reply, state->channel->bytes);
    hil_put_str(reply, state->channel->name);
  }
}

bool hil_find_channel(uint32_t index, hil_region* found, hil_writer* reply) {
  const hil_channel_state* state = find(index);
  if (state == NULL) return hil_fail(reply, HIL_STATUS_BAD_REQUEST, "no such channel");
  const hil_channel* channel = state->channel;
  const uint32_t slot = get(&state->tail) & (channel->depth - 1);
  found->bytes.data = channel->frames + (is_input(state) ? 0 : slot * channel->bytes);
  found->bytes.size = is_input(state) || state->held != 0 ? channel->bytes : 0;
  found->writable = is_input(state) && get(&state->attached) != 0 && queued(state) == 0;
  return true;
}

static void attach(hil_channel_state* state) {
  if (!is_input(state)) {
    state->held = 0;
    set(&state->tail, get(&state->head));
  }
  set(&state->attached, 1);
}

// Frames of all outputs that the host has not fetched.
static uint32_t pending(void) {
  uint32_t frames = 0;
  for (uint32_t i = 0; i < get(&count); ++i) {
    const hil_channel_state* state = find(i);
    if (!is_input(state)) frames += queued(state) - state->held;
  }
  return frames;
}

// Makes a frame of `bytes`, or of what was written before if there are none. It is `done` only
// where there is room, also for what is made of it: the host has fetched what was made so far.
static bool give(hil_channel_state* state, uint32_t number, const hil_reader* bytes, bool* done,
                 hil_writer* reply) {
  const bool fits = bytes->left == 0 || bytes->left == state->channel->bytes;
  if (!is_input(state) || number == 0 || !fits) {
    return hil_fail(reply, HIL_STATUS_BAD_REQUEST, "no input, no number, or another size");
  }
  *done = get(&state->attached) != 0 && queued(state) == 0 && pending() == 0;
  if (!*done) return true;
  if (bytes->left > 0) memcpy(state->channel->frames, bytes->data, bytes->left);
  state->given = number;
  worked_on = number;
  set(&state->head, state->head + 1);
  return true;
}

// Whether the host has something to do: an input without a frame waits, or half an output is full.
static bool needs_host(const hil_channel_state* state) {
  if (get(&state->attached) == 0) return false;
  if (is_input(state)) return get(&state->waiting) != 0 && queued(state) == 0;
  return 2 * (queued(state) - state->held) >= state->channel->depth;
}

bool hil_is_at_work(void) { return worked_on != 0; }

void hil_end_work(void) {
  for (uint32_t i = 0; worked_on != 0 && i < get(&count); ++i) {
    if (!needs_host(find(i))) continue;
    hil_send_waiting(worked_on);
    worked_on = 0;
  }
}

// Lets go of the frame that is held, and holds the next one.
static bool fetch(hil_channel_state* state, hil_writer* reply) {
  if (is_input(state)) return hil_fail(reply, HIL_STATUS_BAD_REQUEST, "an input gives no frames");
  if (state->held != 0) set(&state->tail, state->tail + 1);
  state->held = queued(state) != 0 ? 1 : 0;
  return true;
}

static bool act(hil_channel_state* state, uint8_t action, uint32_t number, const hil_reader* bytes,
                bool* done, hil_writer* reply) {
  if (bytes->left > 0 && action != HIL_ACTION_GIVE) {
    return hil_fail(reply, HIL_STATUS_BAD_REQUEST, "payload of the wrong size");
  }
  switch (action) {
    case HIL_ACTION_LOOK:
      return true;
    case HIL_ACTION_ATTACH:
      attach(state);
      return true;
    case HIL_ACTION_DETACH:
      set(&state->attached, 0);
      if (is_input(state)) worked_on = 0;
      return true;
    case HIL_ACTION_GIVE:
      return give(state, number, bytes, done, reply);
    case HIL_ACTION_FETCH:
      return fetch(state, reply);
    default:
      return hil_fail(reply, HIL_STATUS_BAD_REQUEST, "no such action");
  }
}

// What is held, with as many of its bytes as `room` and the payload hold.
static void put_frame(const hil_channel_state* state, uint32_t room, hil_writer* reply) {
  const hil_channel* channel = state->channel;
  const uint32_t slot = get(&state->tail) & (channel->depth - 1);
  const hil_stamp* stamp = &channel->stamps[slot];
  hil_put_u32(reply, stamp->number);
  hil_put_u32(reply, stamp->input);
  hil_put_u64(reply, stamp->ticks);
  hil_put_u64(reply, stamp->latency);
  const size_t left = reply->capacity - reply->size;
  size_t size = channel->bytes;
  if (size > room) size = room;
  if (size > left) size = left;
  hil_put_bytes(reply, channel->frames + slot * channel->bytes, size);
}

void hil_use_channel(hil_reader* request, uint16_t seq, hil_writer* reply) {
  (void)seq;
  hil_channel_state* state = find(hil_take_u32(request));
  const uint8_t action = hil_take_u8(request);
  const uint32_t number = hil_take_u32(request);
  if (!request->ok || state == NULL) {
    hil_fail(reply, HIL_STATUS_BAD_REQUEST, "no such channel");
    return;
  }
  bool done = true;
  if (!act(state, action, number, request, &done, reply)) return;
  hil_put_u8(reply, done ? 1 : 0);
  hil_put_u8(reply, (uint8_t)get(&state->waiting));
  hil_put_u32(reply, get(&state->total));
  hil_put_u32(reply, queued(state));
  hil_put_u32(reply, pending());
  if (action == HIL_ACTION_FETCH && state->held != 0) put_frame(state, number, reply);
}

void hil_detach_channels(void) {
  for (uint32_t i = 0; i < get(&count); ++i) set(&find(i)->attached, 0);
  set(&taken, 0);
  worked_on = 0;
}

#endif
