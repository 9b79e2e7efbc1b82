#include "target_library/requests.h"

#include <string.h>

#include "target_library/channels.h"
#include "target_library/framing.h"
#include "target_library/isa.h"
#include "target_library/link.h"
#include "target_library/pmu.h"
#include "target_library/program.h"
#include "target_library/regions.h"
#include "target_library/statistics.h"

enum { STATUS_SIZE = 2 };

// The fields with which memory requests begin.
typedef struct address {
  uint8_t region;
  uint32_t index;
  uint32_t offset;
} address;

// The destination of DATA: chunk after chunk, from the seq that follows STREAM's.
typedef struct stream {
  address at;
  uint32_t length;
  uint32_t chunk;
  uint16_t seq;
} stream;

static stream opened;

static address take_address(hil_reader* request) {
  address at;
  at.region = hil_take_u8(request);
  at.index = hil_take_u32(request);
  at.offset = hil_take_u32(request);
  return at;
}

bool hil_complete(const hil_reader* request, hil_writer* reply) {
  return hil_all_taken(request) ||
         hil_fail(reply, HIL_STATUS_BAD_REQUEST, "payload of the wrong size");
}

static bool need_program(hil_writer* reply) {
  return hil_runtime_loaded() || hil_fail(reply, HIL_STATUS_BAD_STATE, "no program is loaded");
}

static bool find_range(const address* at, uint32_t length, hil_region* found, hil_writer* reply) {
  return hil_find_region(at->region, at->index, found, reply) &&
         hil_cut_region(found, at->offset, length, reply);
}

// A loaded program was verified where it lies, so changing it is the end of it.
static bool find_writable(const address* at, uint32_t length, hil_region* found,
                          hil_writer* reply) {
  if (!find_range(at, length, found, reply)) return false;
  if (!found->writable) return hil_fail(reply, HIL_STATUS_BAD_REQUEST, "read only");
  if (at->region == HIL_MEMORY_PROGRAM) hil_unload_program();
  return true;
}

static uint32_t cpuid(void) {
#if defined(__arm__)
  return *(const volatile uint32_t*)(uintptr_t)0xE000ED00;  // SCB->CPUID
#else
  return 0;
#endif
}

static void hello(hil_reader* request, uint16_t seq, hil_writer* reply) {
  (void)seq;
  if (!hil_complete(request, reply)) return;
#if HIL_CHANNELS
  hil_detach_channels();
#endif
  const hil_target* target = hil_used_target();
  hil_put_str(reply, target->build_id);
  hil_put_str(reply, target->configuration);
  hil_put_u32(reply, cpuid());
  hil_put_str(reply, HIL_ISA_NAME);
  hil_put_str(reply, HIL_ARCHITECTURE);
  hil_put_str(reply, hil_runtime_name());
  hil_put_str(reply, hil_runtime_version());
  hil_put_u32(reply, HIL_TARGET_MAX_PAYLOAD);
  hil_put_u32(reply, (uint32_t)target->program.size);
  hil_put_u32(reply, (uint32_t)target->method.size);
  hil_put_u32(reply, (uint32_t)target->temp.size);
  hil_put_u8(reply, (uint8_t)target->bank_count);
  for (size_t i = 0; i < target->bank_count; ++i) {
    hil_put_u32(reply, (uint32_t)target->banks[i].memory.size);
  }
  hil_put_str(reply, target->now != NULL ? target->tick_source : "none");
  hil_put_u32(reply, target->now != NULL ? target->tick_hz : 0);
  if (target->firmware == NULL) return;
  hil_put_str(reply, target->firmware);
  hil_put_u32(reply, target->without | HIL_WITHOUT_CHANNELS);
}

// As many names as `room` bytes hold.
static void operators(hil_reader* request, uint16_t seq, hil_writer* reply) {
  (void)seq;
  const uint32_t first = hil_take_u32(request);
  const uint32_t room = hil_take_u32(request);
  if (!hil_complete(request, reply)) return;
  const size_t total = hil_runtime_operator_count();
  hil_put_u32(reply, (uint32_t)total);
  size_t used = 0;
  for (size_t i = first; i < total; ++i) {
    const char* name = hil_runtime_operator_name(i);
    const size_t size = sizeof(uint16_t) + strlen(name);
    used += size;
    if (used > room || size > reply->capacity - reply->size) return;
    hil_put_str(reply, name);
  }
}

static void store(const address* at, const uint8_t* bytes, size_t size, hil_writer* reply) {
  hil_region region;
  if (!find_writable(at, (uint32_t)size, &region, reply)) return;
  if (size > 0) memcpy(region.bytes.data, bytes, size);
}

static void write(hil_reader* request, uint16_t seq, hil_writer* reply) {
  (void)seq;
  const address at = take_address(request);
  if (!request->ok) {
    hil_complete(request, reply);
    return;
  }
  store(&at, request->data, request->left, reply);
}

static void open_stream(hil_reader* request, uint16_t seq, hil_writer* reply) {
  const address at = take_address(request);
  const uint32_t length = hil_take_u32(request);
  const uint32_t chunk = hil_take_u32(request);
  if (!hil_complete(request, reply)) return;
  memset(&opened, 0, sizeof opened);
  if (chunk == 0) {
    hil_fail(reply, HIL_STATUS_BAD_REQUEST, "chunks of no size");
    return;
  }
  hil_region region;
  if (!find_writable(&at, length, &region, reply)) return;
  opened.at = at;
  opened.length = (uint32_t)region.bytes.size;
  opened.chunk = chunk;
  opened.seq = seq;
}

// Each names its place by its seq alone, so they may arrive in any order, and again.
static void data(hil_reader* request, uint16_t seq, hil_writer* reply) {
  const size_t size = request->left;
  const uint64_t start = (uint64_t)opened.chunk * (uint16_t)(seq - opened.seq - 1);
  const bool is_open = opened.chunk != 0;
  if (!is_open || size > opened.chunk || start + size > opened.length) {
    hil_fail(reply, HIL_STATUS_BAD_REQUEST, "outside the stream");
    return;
  }
  address at = opened.at;
  at.offset += (uint32_t)start;
  store(&at, request->data, size, reply);
}

static void read(hil_reader* request, uint16_t seq, hil_writer* reply) {
  (void)seq;
  const address at = take_address(request);
  const uint32_t length = hil_take_u32(request);
  hil_region region;
  if (!hil_complete(request, reply)) return;
  if (length > HIL_TARGET_MAX_PAYLOAD - STATUS_SIZE) {
    hil_fail_room(reply, HIL_STATUS_BAD_REQUEST, "more than a payload holds", length,
                  HIL_TARGET_MAX_PAYLOAD - STATUS_SIZE);
    return;
  }
  if (!find_range(&at, length, &region, reply)) return;
  hil_put_bytes(reply, region.bytes.data, region.bytes.size);
}

static void fill(hil_reader* request, uint16_t seq, hil_writer* reply) {
  (void)seq;
  const address at = take_address(request);
  const uint32_t length = hil_take_u32(request);
  const uint8_t pattern = hil_take_u8(request);
  hil_region region;
  if (!hil_complete(request, reply) || !find_writable(&at, length, &region, reply)) return;
  if (region.bytes.size > 0) memset(region.bytes.data, pattern, region.bytes.size);
}

static void digest(hil_reader* request, uint16_t seq, hil_writer* reply) {
  (void)seq;
  const address at = take_address(request);
  const uint32_t length = hil_take_u32(request);
  hil_region region;
  if (!hil_complete(request, reply) || !find_range(&at, length, &region, reply)) return;
  hil_put_u32(reply, hil_crc32(0, region.bytes.data, region.bytes.size));
}

static bool holds(const uint8_t* memory, size_t room, uint32_t size, uint32_t crc) {
  return size <= room && hil_crc32(0, memory, size) == crc;
}

// Where a program lies; NULL after the reason was put into `reply`.
static const uint8_t* find_program(uint32_t size, uint32_t crc, hil_writer* reply) {
  const hil_target* target = hil_used_target();
  if (size > target->program.size && size > target->resident_size) {
    hil_fail_room(reply, HIL_STATUS_OUT_OF_MEMORY, "program pool", size, target->program.size);
    return NULL;
  }
  if (holds(target->program.data, target->program.size, size, crc)) return target->program.data;
  if (holds(target->resident, target->resident_size, size, crc)) return target->resident;
  hil_fail(reply, HIL_STATUS_BAD_DIGEST, "the program's CRC is not the one announced");
  return NULL;
}

static void put_loaded(hil_writer* reply) {
  const hil_program_shape shape = hil_runtime_shape();
  hil_put_u16(reply, shape.inputs);
  hil_put_u16(reply, shape.outputs);
  hil_put_u32(reply, shape.values);
  hil_put_u32(reply, shape.instructions);
  for (size_t i = 0; i < hil_runtime_banks(); ++i) {
    const hil_memory planned = hil_runtime_planned(i);
    hil_put_u64(reply, (uintptr_t)planned.data);
    hil_put_u32(reply, (uint32_t)planned.size);
  }
}

static void load(hil_reader* request, uint16_t seq, hil_writer* reply) {
  (void)seq;
  const uint32_t size = hil_take_u32(request);
  const uint32_t crc = hil_take_u32(request);
  char method[HIL_MAX_METHOD_NAME + 1];
  const bool is_name = hil_take_str(request, method, sizeof method);
  if (!hil_complete(request, reply)) return;
  if (!is_name) {
    hil_fail(reply, HIL_STATUS_BAD_REQUEST, "no name of a method");
    return;
  }
  hil_unload_program();
  const uint8_t* program = find_program(size, crc, reply);
  if (program == NULL) return;
  if (hil_load_program(program, size, method)) {
    put_loaded(reply);
  } else {
    hil_fail_program(reply, hil_runtime_failure());
  }
}

static void describe(hil_reader* request, uint16_t seq, hil_writer* reply) {
  (void)seq;
  const uint8_t region = hil_take_u8(request);
  const uint32_t index = hil_take_u32(request);
  hil_value value;
  if (!hil_complete(request, reply) || !hil_find_value(region, index, &value, reply)) return;
  hil_put_u8(reply, value.kind);
  hil_put_u8(reply, value.dtype);
  hil_put_u8(reply, value.rank);
  hil_put_u32(reply, (uint32_t)value.data.size);
  for (size_t i = 0; i < value.rank && i < HIL_MAX_RANK; ++i) hil_put_i32(reply, value.sizes[i]);
  for (size_t i = 0; i < value.rank && i < HIL_MAX_RANK; ++i) {
    hil_put_u8(reply, value.dim_order[i]);
  }
}

static bool take_sizes(hil_reader* request, int32_t* sizes, size_t rank, hil_writer* reply) {
  uint64_t elements = 1;
  for (size_t i = 0; i < rank; ++i) {
    sizes[i] = (int32_t)hil_take_u32(request);
    if (sizes[i] < 0) return hil_fail(reply, HIL_STATUS_BAD_REQUEST, "a negative size");
    elements *= (uint64_t)sizes[i];
    if (elements > INT32_MAX) return hil_fail(reply, HIL_STATUS_BAD_REQUEST, "too many elements");
  }
  return hil_complete(request, reply);
}

static void resize(hil_reader* request, uint16_t seq, hil_writer* reply) {
  (void)seq;
  const uint32_t number = hil_take_u32(request);
  const uint8_t rank = hil_take_u8(request);
  if (rank > HIL_MAX_RANK) {
    hil_fail_room(reply, HIL_STATUS_BAD_REQUEST, "too many dimensions", rank, HIL_MAX_RANK);
    return;
  }
  int32_t sizes[HIL_MAX_RANK] = {0};
  if (!take_sizes(request, sizes, rank, reply) || !need_program(reply)) return;
  if (!hil_runtime_resize_input(number, sizes, rank)) {
    hil_fail_program(reply, hil_runtime_failure());
  }
}

static bool execute(uint32_t count, hil_execution* execution, hil_writer* reply) {
  if (hil_execute(count, hil_send_progress, execution)) return true;
  hil_fail_program(reply, hil_runtime_failure());
  return false;
}

static void execute_all(hil_reader* request, uint16_t seq, hil_writer* reply) {
  (void)seq;
  if (!hil_complete(request, reply) || !need_program(reply)) return;
  hil_runtime_rewind();
  hil_execution execution;
  if (execute(HIL_TO_THE_END, &execution, reply)) hil_put_u64(reply, execution.ticks);
}

static void step(hil_reader* request, uint16_t seq, hil_writer* reply) {
  (void)seq;
  const uint32_t count = hil_take_u32(request);
  if (!hil_complete(request, reply) || !need_program(reply)) return;
  hil_execution execution;
  if (!execute(count, &execution, reply)) return;
  hil_put_u32(reply, hil_runtime_program_counter());
  hil_put_u8(reply, execution.done ? 1 : 0);
  hil_put_u64(reply, execution.ticks);
}

static void stats(hil_reader* request, uint16_t seq, hil_writer* reply) {
  (void)seq;
  if (!hil_complete(request, reply)) return;
  for (size_t i = 0; i < hil_statistics_count; ++i) {
    const hil_usage usage = hil_statistics[i].read();
    hil_put_str(reply, hil_statistics[i].name);
    hil_put_u32(reply, (uint32_t)usage.used);
    hil_put_u32(reply, (uint32_t)usage.size);
  }
}

// Without events it only asks for the counts of those that were chosen before.
static void counters(hil_reader* request, uint16_t seq, hil_writer* reply) {
  (void)seq;
  uint16_t events[HIL_PMU_MAX_EVENTS] = {0};
  size_t count = 0;
  const size_t counters = hil_pmu_counters();
  while (request->left > 0 && count < HIL_PMU_MAX_EVENTS) events[count++] = hil_take_u16(request);
  if (!hil_complete(request, reply)) return;
  if (count > counters && counters > 0) {
    hil_fail_room(reply, HIL_STATUS_BAD_REQUEST, "more events than counters", count, counters);
    return;
  }
  if (count > 0 && counters > 0) hil_count_events(events, count);
  hil_put_u8(reply, (uint8_t)counters);
  hil_put_u8(reply, hil_pmu_is_counting() ? 1 : 0);
  const hil_event_count* counts = hil_pmu_counts(&count);
  for (size_t i = 0; i < count; ++i) {
    hil_put_u16(reply, counts[i].event);
    hil_put_u8(reply, counts[i].overflowed ? 1 : 0);
    hil_put_u64(reply, counts[i].count);
  }
}

static void reset(hil_reader* request, uint16_t seq, hil_writer* reply) {
  (void)seq;
  if (hil_complete(request, reply)) hil_unload_program();
}

typedef struct entry {
  hil_request type;
  void (*handle)(hil_reader* request, uint16_t seq, hil_writer* reply);
} entry;

static const entry table[] = {
    {HIL_REQUEST_HELLO, hello},
    {HIL_REQUEST_WRITE, write},
    {HIL_REQUEST_READ, read},
    {HIL_REQUEST_FILL, fill},
    {HIL_REQUEST_DIGEST, digest},
    {HIL_REQUEST_LOAD, load},
    {HIL_REQUEST_DESCRIBE, describe},
    {HIL_REQUEST_EXECUTE, execute_all},
    {HIL_REQUEST_STEP, step},
    {HIL_REQUEST_STATS, stats},
    {HIL_REQUEST_RESET, reset},
    {HIL_REQUEST_STREAM, open_stream},
    {HIL_REQUEST_DATA, data},
    {HIL_REQUEST_OPERATORS, operators},
    {HIL_REQUEST_RESIZE, resize},
    {HIL_REQUEST_COUNTERS, counters},
#if HIL_CHANNELS
    {HIL_REQUEST_CHANNELS, hil_list_channels},
    {HIL_REQUEST_CHANNEL, hil_use_channel},
#endif
};

static bool offers(uint8_t type) {
  return type >= 32 || (hil_used_target()->without & UINT32_C(1) << type) == 0;
}

void hil_handle_request(uint8_t type, uint16_t seq, hil_reader request, hil_writer* reply) {
  hil_begin_reply(reply, HIL_STATUS_OK);
  for (size_t i = 0; i < sizeof table / sizeof table[0]; ++i) {
    if ((uint8_t)table[i].type != type) continue;
    if (!offers(type)) {
      hil_fail(reply, HIL_STATUS_BAD_REQUEST, "this firmware does not answer such requests");
      return;
    }
    table[i].handle(&request, seq, reply);
    if (!reply->ok) hil_fail(reply, HIL_STATUS_OUT_OF_MEMORY, "the answer exceeds max_payload");
    return;
  }
  hil_fail(reply, HIL_STATUS_BAD_REQUEST, "unknown request");
}
