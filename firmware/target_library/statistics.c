#include "target_library/statistics.h"

#include "target_library/link.h"
#include "target_library/program.h"
#include "target_library/stack.h"

static hil_usage usage(size_t used, size_t size) {
  const hil_usage made = {used, size};
  return made;
}

static size_t if_loaded(size_t used) { return hil_runtime_loaded() ? used : 0; }

static hil_usage program(void) { return usage(hil_program_used(), hil_target_used->program.size); }

static hil_usage planned(void) {
  hil_usage all = {0, 0};
  for (size_t i = 0; i < hil_target_used->bank_count; ++i) {
    all.used += if_loaded(hil_runtime_planned(i).size);
    all.size += hil_target_used->banks[i].memory.size;
  }
  return all;
}

static hil_usage method(void) {
  return usage(if_loaded(hil_runtime_method_used()), hil_target_used->method.size);
}

static hil_usage stack(void) { return usage(hil_stack_used(), hil_target_used->stack.size); }

static hil_usage temp(void) {
  const size_t own = hil_target_used->temp.size;
  return usage(if_loaded(hil_runtime_temp_used()), own > 0 ? own : hil_target_used->method.size);
}

const hil_statistic hil_statistics[] = {
    {"program", program}, {"planned", planned}, {"method", method},
    {"stack", stack},     {"temp", temp},
};

const size_t hil_statistics_count = sizeof hil_statistics / sizeof hil_statistics[0];
