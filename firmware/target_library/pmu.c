#include "target_library/pmu.h"

#if HIL_PMU

// Registers, their bits and the numbers of events: CMSIS_6 of commit 7f62ddc,
// CMSIS/Core/Include/core_cm55.h and m-profile/armv8m_pmu.h.
#define PMU_EVCNTR 0xE0003000u
#define PMU_EVTYPER 0xE0003400u
#define PMU_CNTENSET 0xE0003C00u
#define PMU_CNTENCLR 0xE0003C20u
#define PMU_OVSCLR 0xE0003C80u
#define PMU_OVSSET 0xE0003CC0u
#define PMU_TYPE 0xE0003E00u
#define PMU_CTRL 0xE0003E04u
#define DEMCR 0xE000EDFCu

enum {
  TYPE_COUNTERS = 0xFF,
  CTRL_ENABLE = 1,
  CTRL_RESET_EVENT_COUNTERS = 2,
  COUNTER_MASK = 0xFFFF,
  EVENT_INST_RETIRED = 0x0008,
  EVENT_CHAIN = 0x001E,  // an odd counter counts the overflows of the one before
};
#define DEMCR_TRCENA (UINT32_C(1) << 24)
#define ALL UINT32_C(0xFFFFFFFF)

#if defined(HIL_PMU_MODEL)

uint32_t hil_pmu_model_read(uint32_t address);
void hil_pmu_model_write(uint32_t address, uint32_t value);

static uint32_t get(uint32_t address) { return hil_pmu_model_read(address); }
static void set(uint32_t address, uint32_t value) { hil_pmu_model_write(address, value); }
static void barrier(void) {}
static bool may_have_one(void) { return true; }

#else

static uint32_t get(uint32_t address) { return *(const volatile uint32_t*)(uintptr_t)address; }
static void set(uint32_t address, uint32_t value) {
  *(volatile uint32_t*)(uintptr_t)address = value;
}
static void barrier(void) { __asm volatile("dsb\n\tisb" ::: "memory"); }

// Elsewhere these addresses are reserved, and reading them may be a fault. `part` as in cpus.json.
static bool may_have_one(void) {
  const uint32_t part = get(0xE000ED00u) >> 4 & 0xFFF;  // SCB->CPUID
  return part == 0xD22 || part == 0xD23;                // Cortex-M55, Cortex-M85
}

#endif

static hil_event_count chosen[HIL_PMU_MAX_EVENTS];
static uint32_t costs[HIL_PMU_MAX_EVENTS];  // of measuring nothing
static size_t chosen_count;

size_t hil_pmu_counters(void) {
  if (!may_have_one()) return 0;
  const size_t pairs = (get(PMU_TYPE) & TYPE_COUNTERS) / 2;
  return pairs < HIL_PMU_MAX_EVENTS ? pairs : HIL_PMU_MAX_EVENTS;
}

static void start(void) {
  set(PMU_CTRL, CTRL_RESET_EVENT_COUNTERS);
  set(PMU_OVSCLR, ALL);
  set(PMU_CTRL, CTRL_ENABLE);
  barrier();
}

static void stop(void) {
  barrier();
  set(PMU_CTRL, 0);
  barrier();
}

static void connect(size_t pair, uint16_t event) {
  const uint32_t even = 2 * (uint32_t)pair;
  set(PMU_EVTYPER + 4 * even, event);
  set(PMU_EVTYPER + 4 * (even + 1), EVENT_CHAIN);
  set(PMU_CNTENSET, UINT32_C(3) << even);
}

static uint32_t counted(size_t pair) {
  const uint32_t even = PMU_EVCNTR + 8 * (uint32_t)pair;
  return (get(even + 4) & COUNTER_MASK) << 16 | (get(even) & COUNTER_MASK);
}

static void begin(void) {
  set(DEMCR, get(DEMCR) | DEMCR_TRCENA);
  set(PMU_CTRL, 0);
  set(PMU_CNTENCLR, ALL);
}

bool hil_pmu_is_counting(void) {
  if (hil_pmu_counters() == 0) return false;
  begin();
  connect(0, EVENT_INST_RETIRED);
  start();
  stop();
  const bool counts = counted(0) > 0;
  begin();
  for (size_t i = 0; i < chosen_count; ++i) connect(i, chosen[i].event);
  return counts;
}

void hil_pmu_choose(const uint16_t* events, size_t count, void (*measuring)(void)) {
  chosen_count = 0;
  if (count == 0) return;
  begin();
  for (size_t i = 0; i < count; ++i) {
    chosen[i].event = events[i];
    costs[i] = ALL;
    connect(i, events[i]);
  }
  for (int round = 0; round < 3; ++round) {
    start();
    measuring();
    stop();
    for (size_t i = 0; i < count; ++i) {
      const uint32_t cost = counted(i);
      if (cost < costs[i]) costs[i] = cost;
    }
  }
  chosen_count = count;
  hil_pmu_clear();
}

void hil_pmu_clear(void) {
  for (size_t i = 0; i < chosen_count; ++i) {
    chosen[i].overflowed = false;
    chosen[i].count = 0;
  }
}

void hil_pmu_start(void) {
  if (chosen_count > 0) start();
}

void hil_pmu_stop(void) {
  if (chosen_count == 0) return;
  stop();
  const uint32_t overflows = get(PMU_OVSSET);
  for (size_t i = 0; i < chosen_count; ++i) {
    const uint32_t count = counted(i);
    chosen[i].count += count > costs[i] ? count - costs[i] : 0;
    if ((overflows >> (2 * i + 1) & 1) != 0) chosen[i].overflowed = true;
  }
}

const hil_event_count* hil_pmu_counts(size_t* count) {
  *count = chosen_count;
  return chosen;
}

#endif
