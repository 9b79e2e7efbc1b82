// One function for each request of docs/protocol.md.
#ifndef HIL_REQUESTS_H
#define HIL_REQUESTS_H

#include "target_library/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

void hil_handle_request(uint8_t type, uint16_t seq, hil_reader request, hil_writer* reply);

#ifdef __cplusplus
}
#endif

#endif
