// One function for each request of docs/protocol.md, and the loop that answers them.
#ifndef HIL_REQUESTS_H
#define HIL_REQUESTS_H

#include "target_library/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

// Whether all of a payload was read; false: that it was not is in `reply`.
bool hil_complete(const hil_reader* request, hil_writer* reply);

void hil_handle_request(uint8_t type, uint16_t seq, hil_reader request, hil_writer* reply);

// Serves what arrives within so many milliseconds. false: the host is gone.
bool hil_serve(uint32_t milliseconds);

#ifdef __cplusplus
}
#endif

#endif
