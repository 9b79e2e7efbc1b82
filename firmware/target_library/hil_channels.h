// Points in the firmware's own code at which a test gives data, or sees it: the way from the sensor
// to the decision.
//
//   HIL_INPUT(mic_frame, samples, sizeof samples);   // behind the sensor's driver
//   compute_features(samples, features);
//   HIL_OUTPUT(features, features, sizeof features);
//
// HIL_INPUT does nothing, until a test sends to the channel. From then on it waits for the test's
// next frame, answers the host meanwhile, and puts the frame in place of what `buffer` holds.
// HIL_OUTPUT never waits. While a test listens it keeps a copy of `buffer`; where HIL_CHANNEL_DEPTH
// copies wait to be fetched, the new one is lost, and counted.
//
// `name` is a word, `buffer` a pointer to its elements, `bytes` a constant. A name is for one
// point, and all points are in one thread; `yield` of hil_target says what that needs if another
// thread serves. Each point takes its `bytes` once more, an output HIL_CHANNEL_DEPTH times.
// Compiled without HIL_CHANNELS=1 they are nothing.
#ifndef HIL_CHANNELS_H
#define HIL_CHANNELS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if !defined(HIL_CHANNELS)
#define HIL_CHANNELS 0
#endif

#if HIL_CHANNELS

#if !defined(HIL_CHANNEL_DEPTH)
#define HIL_CHANNEL_DEPTH 4
#endif
#if HIL_CHANNEL_DEPTH < 1 || (HIL_CHANNEL_DEPTH & (HIL_CHANNEL_DEPTH - 1)) != 0
#error "HIL_CHANNEL_DEPTH is 1, 2, 4, 8 ..."
#endif

// When a frame was published, and after which one of the host's.
typedef struct hil_stamp {
  uint32_t number;   // of the channel's frames since the boot
  uint32_t input;    // the host's frame that was taken last, 0: none
  uint64_t ticks;    // now()
  uint64_t latency;  // ticks since that frame was taken
} hil_stamp;

// Made by the macros.
typedef struct hil_channel {
  const char* name;
  uint8_t* frames;    // `depth` of them
  hil_stamp* stamps;  // as many; NULL for an input
  uint32_t bytes;     // of a frame
  uint32_t depth;     // a power of two
  uint8_t element;    // bytes of an element; 0: they are no numbers
} hil_channel;

typedef struct hil_channel_state {
  const hil_channel* channel;  // NULL until the firmware has passed the point
  struct hil_channel_state* next;
  uint32_t attached;  // the host sends, or listens
  uint32_t waiting;   // the firmware waits here
  uint32_t head;      // frames that were put in
  uint32_t tail;      // and taken out
  uint32_t held;      // the frame at the tail is being read by the host
  uint32_t given;     // the host's number of the frame that was put in last
  uint32_t total;     // frames that the firmware has taken, or published
} hil_channel_state;

void hil_pass_input(const hil_channel* channel, hil_channel_state* state, void* buffer);
void hil_pass_output(const hil_channel* channel, hil_channel_state* state, const void* buffer);

#define HIL_ELEMENT_(buffer) (sizeof(*(buffer)) <= 8 ? (uint8_t)sizeof(*(buffer)) : 0)

#define HIL_INPUT(name, buffer, bytes)                                                            \
  do {                                                                                            \
    static uint8_t hil_frame_[bytes];                                                             \
    static const hil_channel hil_channel_ = {#name, hil_frame_,          NULL, (uint32_t)(bytes), \
                                             1,     HIL_ELEMENT_(buffer)};                        \
    static hil_channel_state hil_state_;                                                          \
    hil_pass_input(&hil_channel_, &hil_state_, (buffer));                                         \
  } while (0)

#define HIL_OUTPUT(name, buffer, bytes)                             \
  do {                                                              \
    static uint8_t hil_frames_[HIL_CHANNEL_DEPTH * (bytes)];        \
    static hil_stamp hil_stamps_[HIL_CHANNEL_DEPTH];                \
    static const hil_channel hil_channel_ = {#name,                 \
                                             hil_frames_,           \
                                             hil_stamps_,           \
                                             (uint32_t)(bytes),     \
                                             HIL_CHANNEL_DEPTH,     \
                                             HIL_ELEMENT_(buffer)}; \
    static hil_channel_state hil_state_;                            \
    hil_pass_output(&hil_channel_, &hil_state_, (buffer));          \
  } while (0)

#else

// sizeof: the variables count as used, and nothing is computed.
#define HIL_INPUT(name, buffer, bytes) ((void)sizeof((void)(buffer), (void)(bytes), 0))
#define HIL_OUTPUT(name, buffer, bytes) ((void)sizeof((void)(buffer), (void)(bytes), 0))

#endif

#ifdef __cplusplus
}
#endif

#endif
