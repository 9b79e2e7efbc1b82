// The protocol's memory regions: (region, index) to bytes.
#ifndef HIL_REGIONS_H
#define HIL_REGIONS_H

#include "target_library/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

// `bytes` may be written only if `writable`.
typedef struct hil_region {
  hil_memory bytes;
  bool writable;
} hil_region;

// Each returns false after putting the reason into `reply`.
bool hil_find_value(uint8_t region, uint32_t index, hil_value* value, hil_writer* reply);
bool hil_find_region(uint8_t region, uint32_t index, hil_region* found, hil_writer* reply);
// Cuts a region down to `length` bytes at `offset`, or to all from there if it is HIL_TO_THE_END.
bool hil_cut_region(hil_region* region, uint32_t offset, uint32_t length, hil_writer* reply);

#ifdef __cplusplus
}
#endif

#endif
