// A model of the PMU's registers, for tests of what reads them: it counts made-up events, as many
// as the number of the event and that of the program's instruction say.
#include <stdbool.h>
#include <stdint.h>

#include "target_library/program.h"

enum {
  COUNTERS = 8,
  MEASURING = 5,        // events whenever something is measured, an instruction or nothing
  INSTRUCTION = 100,    // more events for each further instruction
  OVERFLOWING = 0x2B8,  // an event of which there are more than 2^32
  CHAIN = 0x1E,
};

bool hil_pmu_model_is_prohibited;  // as without the signals that admit debugging: nothing counts
static uint16_t values[COUNTERS];
static uint16_t events[COUNTERS];
static uint32_t enabled;
static uint32_t overflows;
static uint32_t control;
static uint32_t demcr;

static void add(uint32_t counter, uint64_t amount) {
  const uint64_t sum = values[counter] + amount;
  const uint64_t carry = sum >> 16;
  values[counter] = (uint16_t)sum;
  if (carry == 0) return;
  overflows |= UINT32_C(1) << counter;
  const uint32_t next = counter + 1;
  const bool is_chained =
      next % 2 == 1 && next < COUNTERS && events[next] == CHAIN && (enabled >> next & 1) != 0;
  if (is_chained) add(next, carry);
}

static uint64_t made_up(uint16_t event) {
  const int32_t instruction = hil_current_instruction();
  if (instruction < 0) return MEASURING;
  if (event == OVERFLOWING) return UINT64_C(1) << 32;
  return MEASURING + (uint64_t)event * 1000 + (uint64_t)instruction * INSTRUCTION;
}

static void count(void) {
  const bool is_traced = (demcr >> 24 & 1) != 0 && !hil_pmu_model_is_prohibited;
  for (uint32_t i = 0; i < COUNTERS && is_traced; ++i) {
    if ((enabled >> i & 1) != 0 && events[i] != CHAIN) add(i, made_up(events[i]));
  }
}

static uint32_t index_of(uint32_t address, uint32_t base) { return (address - base) / 4; }

uint32_t hil_pmu_model_read(uint32_t address);
uint32_t hil_pmu_model_read(uint32_t address) {
  if (index_of(address, 0xE0003000u) < COUNTERS) return values[index_of(address, 0xE0003000u)];
  switch (address) {
    case 0xE0003CC0u:
      return overflows;
    case 0xE0003E00u:
      return COUNTERS;
    case 0xE000EDFCu:
      return demcr;
    default:
      return 0;
  }
}

static void set_control(uint32_t value) {
  if ((control & 1) != 0 && (value & 1) == 0) count();
  for (uint32_t i = 0; i < COUNTERS && (value & 2) != 0; ++i) values[i] = 0;
  control = value;
}

void hil_pmu_model_write(uint32_t address, uint32_t value);
void hil_pmu_model_write(uint32_t address, uint32_t value) {
  const uint32_t typer = index_of(address, 0xE0003400u);
  if (typer < COUNTERS) {
    events[typer] = (uint16_t)value;
    return;
  }
  switch (address) {
    case 0xE0003C00u:
      enabled |= value;
      break;
    case 0xE0003C20u:
      enabled &= ~value;
      break;
    case 0xE0003C80u:
      overflows &= ~value;
      break;
    case 0xE0003E04u:
      set_control(value);
      break;
    case 0xE000EDFCu:
      demcr = value;
      break;
    default:
      break;
  }
}
