#include "target_library/regions.h"

#include <string.h>

#include "target_library/channels.h"
#include "target_library/link.h"
#include "target_library/program.h"

static size_t coverage_size = 0;  // bytes at the start of the memory for programs

static hil_memory counts(void) {
  const hil_memory memory = {hil_used_target()->program.data, coverage_size};
  return memory;
}

// Writes the coverage counts anew, and gives them as a vector of bytes.
static bool find_coverage(hil_value* value, hil_writer* reply) {
  const hil_target* target = hil_used_target();
  if (target->coverage == NULL) {
    return hil_fail(reply, HIL_STATUS_BAD_REQUEST, "this runner counts nothing");
  }
  hil_unload_program();
  coverage_size = target->coverage(target->program.data, target->program.size);
  if (coverage_size == 0) {
    return hil_fail(reply, HIL_STATUS_BAD_REQUEST,
                    "the program pool does not hold what the kernels count");
  }
  memset(value, 0, sizeof *value);
  value->kind = HIL_KIND_TENSOR;
  value->rank = 1;
  value->data = counts();
  value->sizes[0] = (int32_t)value->data.size;
  return true;
}

static bool look_up(uint8_t region, uint32_t index, hil_value* value) {
  switch (region) {
    case HIL_MEMORY_VALUE:
      return hil_runtime_value(index, value);
    case HIL_MEMORY_INPUT:
      return hil_runtime_input(index, value);
    default:
      return hil_runtime_output(index, value);
  }
}

bool hil_find_value(uint8_t region, uint32_t index, hil_value* value, hil_writer* reply) {
  if (region == HIL_MEMORY_COVERAGE) return find_coverage(value, reply);
  if (region < HIL_MEMORY_VALUE || region > HIL_MEMORY_OUTPUT) {
    return hil_fail(reply, HIL_STATUS_BAD_REQUEST, "not a region of values");
  }
  if (!hil_runtime_loaded()) return hil_fail(reply, HIL_STATUS_BAD_STATE, "no program is loaded");
  if (!look_up(region, index, value)) {
    return hil_fail(reply, HIL_STATUS_BAD_REQUEST, "no such value");
  }
  return true;
}

static bool find_bank(uint8_t region, uint32_t index, hil_region* found, hil_writer* reply) {
  if (!hil_runtime_loaded()) return hil_fail(reply, HIL_STATUS_BAD_STATE, "no program is loaded");
  if (index >= hil_runtime_banks()) return hil_fail(reply, HIL_STATUS_BAD_REQUEST, "no such bank");
  found->bytes = region == HIL_MEMORY_BANK ? hil_runtime_bank(index) : hil_runtime_planned(index);
  found->writable = true;
  return true;
}

// Return the region of a kind that has one region only.
static hil_memory single(uint8_t region) {
  if (region == HIL_MEMORY_PROGRAM) return hil_used_target()->program;
  if (region == HIL_MEMORY_COVERAGE) return counts();
  const hil_memory resident = {(uint8_t*)(uintptr_t)hil_used_target()->resident,
                               hil_used_target()->resident_size};
  return resident;
}

bool hil_find_region(uint8_t region, uint32_t index, hil_region* found, hil_writer* reply) {
  switch (region) {
    case HIL_MEMORY_PROGRAM:
    case HIL_MEMORY_COVERAGE:
    case HIL_MEMORY_RESIDENT:
      if (index != 0) return hil_fail(reply, HIL_STATUS_BAD_REQUEST, "index is not 0");
      found->bytes = single(region);
      found->writable = region == HIL_MEMORY_PROGRAM;
      return true;
    case HIL_MEMORY_PLANNED:
    case HIL_MEMORY_BANK:
      return find_bank(region, index, found, reply);
#if HIL_CHANNELS
    case HIL_MEMORY_CHANNEL:
      return hil_find_channel(index, found, reply);
#endif
    default:
      break;
  }
  hil_value value = {0};
  if (!hil_find_value(region, index, &value, reply)) return false;
  found->bytes = value.data;
  found->writable = value.writable && region != HIL_MEMORY_OUTPUT;
  return true;
}

bool hil_cut_region(hil_region* region, uint32_t offset, uint32_t length, hil_writer* reply) {
  hil_memory* bytes = &region->bytes;
  if (offset > bytes->size) {
    return hil_fail_room(reply, HIL_STATUS_BAD_REQUEST, "offset outside the region", offset,
                         bytes->size);
  }
  const size_t room = bytes->size - offset;
  if (length == HIL_TO_THE_END) length = (uint32_t)room;
  if (length > room) {
    return hil_fail_room(reply, HIL_STATUS_BAD_REQUEST, "length outside the region", length, room);
  }
  if (offset > 0) bytes->data += offset;
  bytes->size = length;
  return true;
}
