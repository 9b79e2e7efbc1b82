// Events that the core's performance monitoring unit counts while a program's instructions execute.
// Armv8.1-M has one; on other cores there are no counters.
#ifndef HIL_PMU_H
#define HIL_PMU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Compilers do not tell Armv8.1-M from Armv8-M: the core says what it is when it runs.
#if defined(HIL_PMU_MODEL)
#define HIL_PMU 1
#elif defined(__arm__) && defined(__ARM_ARCH_ISA_THUMB)
#define HIL_PMU (__ARM_ARCH >= 8 && __ARM_ARCH_ISA_THUMB >= 2)
#else
#define HIL_PMU 0
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum { HIL_PMU_MAX_EVENTS = 8 };

// The count of an event, of 32 bits; `overflowed`: more than these hold.
typedef struct hil_event_count {
  uint16_t event;
  bool overflowed;
  uint64_t count;
} hil_event_count;

#if HIL_PMU

// How many events are counted at once, each by two of the PMU's 16-bit counters; 0: there is no
// PMU.
size_t hil_pmu_counters(void);
// Whether they count: not where the core does not admit it, as without its debug signals.
bool hil_pmu_is_counting(void);
// Counts these events from now on, at most hil_pmu_counters(), from 0 on. What `measuring` costs, a
// measurement of nothing, is no part of what is counted.
void hil_pmu_choose(const uint16_t* events, size_t count, void (*measuring)(void));
void hil_pmu_clear(void);
// Around what is counted; nothing where no events are chosen.
void hil_pmu_start(void);
void hil_pmu_stop(void);
// The chosen events, and how many.
const hil_event_count* hil_pmu_counts(size_t* count);

#else

static inline size_t hil_pmu_counters(void) { return 0; }
static inline bool hil_pmu_is_counting(void) { return false; }
static inline void hil_pmu_choose(const uint16_t* events, size_t count, void (*measuring)(void)) {
  (void)events;
  (void)count;
  (void)measuring;
}
static inline void hil_pmu_clear(void) {}
static inline void hil_pmu_start(void) {}
static inline void hil_pmu_stop(void) {}
static inline const hil_event_count* hil_pmu_counts(size_t* count) {
  *count = 0;
  return NULL;
}

#endif

#ifdef __cplusplus
}
#endif

#endif
