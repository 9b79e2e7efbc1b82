// The host's side of HIL_INPUT and HIL_OUTPUT.
#ifndef HIL_CHANNEL_REQUESTS_H
#define HIL_CHANNEL_REQUESTS_H

#include "target_library/hil_channels.h"
#include "target_library/regions.h"

#ifdef __cplusplus
extern "C" {
#endif

#if HIL_CHANNELS

enum { HIL_WITHOUT_CHANNELS = 0 };

// The requests CHANNELS and CHANNEL.
void hil_list_channels(hil_reader* request, uint16_t seq, hil_writer* reply);
void hil_use_channel(hil_reader* request, uint16_t seq, hil_writer* reply);
// The memory of the region CHANNEL; false after putting the reason into `reply`.
bool hil_find_channel(uint32_t index, hil_region* found, hil_writer* reply);
// As a session begins.
void hil_detach_channels(void);
// Whether the firmware works on the host's frame: the host is silent until hil_end_work() tells it
// that the firmware waits for another one, or that outputs are to be fetched. Bytes that come
// meanwhile would interrupt the work, and be part of its latency.
bool hil_is_at_work(void);
void hil_end_work(void);

#else

enum { HIL_WITHOUT_CHANNELS = 1 << HIL_REQUEST_CHANNELS | 1 << HIL_REQUEST_CHANNEL };
static inline bool hil_is_at_work(void) { return false; }
static inline void hil_end_work(void) {}

#endif

#ifdef __cplusplus
}
#endif

#endif
