// The peaks of memory use that are measured, besides ticks.
#ifndef HIL_STATISTICS_H
#define HIL_STATISTICS_H

#include <stddef.h>

// The peak use and the size in bytes; a size of 0: no bound, or not measured.
typedef struct hil_usage {
  size_t used;
  size_t size;
} hil_usage;

// A row in statistics.c, and one of this name in the host's `statistics.STATISTICS`.
typedef struct hil_statistic {
  const char* name;
  hil_usage (*read)(void);
} hil_statistic;

extern const hil_statistic hil_statistics[];
extern const size_t hil_statistics_count;

#endif
