#include "runner/requests.h"

#include <cstring>

#include "platform/framing.h"
#include "platform/isa.h"
#include "platform/ticks.h"
#include "runner/events.h"
#include "runner/executor.h"
#include "runner/identity.h"
#include "runner/memory_regions.h"
#include "runner/pools.h"
#include "runner/statistics.h"
#include "runtime/arenas.h"
#include "runtime/runtime.h"

namespace hil {

namespace {

constexpr size_t kStatusSize = 2;

// The fields with which memory requests begin.
struct Address {
  uint8_t region = 0;
  uint32_t index = 0;
  uint32_t offset = 0;

  Address() = default;
  explicit Address(Reader& request)
      : region(request.u8()), index(request.u32()), offset(request.u32()) {}
};

// The destination of DATA: chunk after chunk, from the seq that follows STREAM's.
struct Stream {
  Address at;
  uint32_t length = 0;
  uint32_t chunk = 0;
  uint16_t seq = 0;
};

Stream stream;

void short_or_long(Reply& reply) { reply.fail(Code::kBadRequest, "payload of the wrong size"); }

bool complete(const Reader& request, Reply& reply) {
  if (!request.done()) short_or_long(reply);
  return request.done();
}

bool need_program(Reply& reply) {
  if (runtime().loaded()) return true;
  reply.fail(Code::kBadState, "no program is loaded");
  return false;
}

bool find_range(const Address& at, uint32_t length, Memory* memory, Reply& reply) {
  return find_memory(at.region, at.index, memory, reply) &&
         cut_memory(memory, at.offset, length, reply);
}

// A loaded program was verified where it lies, so changing it is the end of it.
bool find_writable(const Address& at, uint32_t length, Memory* memory, Reply& reply) {
  if (!find_range(at, length, memory, reply)) return false;
  if (!memory->writable) {
    reply.fail(Code::kBadRequest, "read only");
    return false;
  }
  if (at.region == static_cast<uint8_t>(MemoryRegion::kProgram)) unload_program();
  return true;
}

void hello(Reader& request, uint16_t, Reply& reply) {
  if (!complete(request, reply)) return;
  Writer& body = reply.body();
  body.str(build_id());
  body.str(config());
  body.u32(cpuid());
  body.str(kIsaName);
  body.str(kArchitecture);
  body.str(runtime().name());
  body.str(runtime().version());
  body.u32(kMaxPayload);
  body.u32(static_cast<uint32_t>(program_pool().size));
  body.u32(static_cast<uint32_t>(method_pool().size));
  body.u32(static_cast<uint32_t>(temp_pool().size));
  const Span<const Bank> all = banks();
  body.u8(static_cast<uint8_t>(all.size));
  for (size_t i = 0; i < all.size; ++i) body.u32(static_cast<uint32_t>(all.data[i].memory.size));
  body.str(ticks_source());
  body.u32(ticks_hz());
}

// As many names as `room` bytes hold.
void operators(Reader& request, uint16_t, Reply& reply) {
  const uint32_t first = request.u32();
  const uint32_t room = request.u32();
  if (!complete(request, reply)) return;
  const size_t total = runtime().operator_count();
  reply.body().u32(static_cast<uint32_t>(total));
  size_t used = 0;
  for (size_t i = first; i < total; ++i) {
    const char* name = runtime().operator_name(i);
    used += sizeof(uint16_t) + std::strlen(name);
    if (used > room || used > reply.body().room()) return;
    reply.body().str(name);
  }
}

void store(const Address& at, Span<const uint8_t> bytes, Reply& reply) {
  Memory memory;
  if (!find_writable(at, static_cast<uint32_t>(bytes.size), &memory, reply)) return;
  if (bytes.size > 0) std::memcpy(memory.bytes.data, bytes.data, bytes.size);
}

void write(Reader& request, uint16_t, Reply& reply) {
  const Address at(request);
  const Span<const uint8_t> bytes = request.rest();
  if (complete(request, reply)) store(at, bytes, reply);
}

void open_stream(Reader& request, uint16_t seq, Reply& reply) {
  Stream opened;
  opened.at = Address(request);
  opened.length = request.u32();
  opened.chunk = request.u32();
  opened.seq = seq;
  Memory memory;
  if (!complete(request, reply)) return;
  stream = {};
  if (opened.chunk == 0) return reply.fail(Code::kBadRequest, "chunks of no size");
  if (!find_writable(opened.at, opened.length, &memory, reply)) return;
  opened.length = static_cast<uint32_t>(memory.bytes.size);
  stream = opened;
}

// Each names its place by its seq alone, so they may arrive in any order, and again.
void data(Reader& request, uint16_t seq, Reply& reply) {
  const Span<const uint8_t> bytes = request.rest();
  const uint64_t start = uint64_t{stream.chunk} * static_cast<uint16_t>(seq - stream.seq - 1);
  const bool is_open = stream.chunk != 0;
  if (!is_open || bytes.size > stream.chunk || start + bytes.size > stream.length) {
    return reply.fail(Code::kBadRequest, "outside the stream");
  }
  Address at = stream.at;
  at.offset += static_cast<uint32_t>(start);
  store(at, bytes, reply);
}

void read(Reader& request, uint16_t, Reply& reply) {
  const Address at(request);
  const uint32_t length = request.u32();
  Memory memory;
  if (!complete(request, reply)) return;
  if (length > kMaxPayload - kStatusSize) {
    return reply.fail(Code::kBadRequest, "more than a payload holds", length,
                      kMaxPayload - kStatusSize);
  }
  if (!find_range(at, length, &memory, reply)) return;
  reply.body().bytes(memory.bytes.data, memory.bytes.size);
}

void fill(Reader& request, uint16_t, Reply& reply) {
  const Address at(request);
  const uint32_t length = request.u32();
  const uint8_t pattern = request.u8();
  Memory memory;
  if (!complete(request, reply) || !find_writable(at, length, &memory, reply)) return;
  if (memory.bytes.size > 0) std::memset(memory.bytes.data, pattern, memory.bytes.size);
}

void digest(Reader& request, uint16_t, Reply& reply) {
  const Address at(request);
  const uint32_t length = request.u32();
  Memory memory;
  if (!complete(request, reply) || !find_range(at, length, &memory, reply)) return;
  reply.body().u32(crc32(memory.bytes.data, memory.bytes.size));
}

void put_shape(Writer& body, const ProgramShape& shape) {
  body.u16(shape.inputs);
  body.u16(shape.outputs);
  body.u32(shape.values);
  body.u32(shape.instructions);
}

void put_arenas(Writer& body, const Arenas& arenas) {
  for (size_t i = 0; i < arenas.banks(); ++i) {
    const Span<uint8_t> planned = arenas.planned(i);
    body.u64(reinterpret_cast<uintptr_t>(planned.data));
    body.u32(static_cast<uint32_t>(planned.size));
  }
}

bool holds(Span<const uint8_t> memory, uint32_t size, uint32_t crc) {
  return size <= memory.size && crc32(memory.data, size) == crc;
}

void load(Reader& request, uint16_t, Reply& reply) {
  const uint32_t size = request.u32();
  const uint32_t crc = request.u32();
  char method[kMaxMethodName + 1];
  const bool is_name = request.str(method, sizeof method);
  if (!complete(request, reply)) return;
  if (!is_name) return reply.fail(Code::kBadRequest, "no name of a method");
  unload_program();
  const Span<const uint8_t> pool{program_pool().data, program_pool().size};
  if (size > pool.size && size > resident_area().size) {
    return reply.fail(Code::kOutOfMemory, "program pool", size, pool.size);
  }
  const bool in_pool = holds(pool, size, crc);
  if (!in_pool && !holds(resident_area(), size, crc)) {
    return reply.fail(Code::kBadDigest, "the program's CRC is not the one announced");
  }
  const uint8_t* program = in_pool ? pool.data : resident_area().data;
  if (!load_program({program, size}, method)) return reply.fail(runtime().failure());
  put_shape(reply.body(), runtime().shape());
  put_arenas(reply.body(), runtime().arenas());
}

void describe(Reader& request, uint16_t, Reply& reply) {
  const uint8_t region = request.u8();
  const uint32_t index = request.u32();
  ValueView view;
  if (!complete(request, reply) || !find_value(region, index, &view, reply)) return;
  Writer& body = reply.body();
  body.u8(static_cast<uint8_t>(view.kind));
  body.u8(view.dtype);
  body.u8(view.rank);
  body.u32(static_cast<uint32_t>(view.data.size));
  for (size_t i = 0; i < view.rank && i < kMaxRank; ++i) body.i32(view.sizes[i]);
  for (size_t i = 0; i < view.rank && i < kMaxRank; ++i) body.u8(view.dim_order[i]);
}

void resize(Reader& request, uint16_t, Reply& reply) {
  const uint32_t number = request.u32();
  const uint8_t rank = request.u8();
  if (rank > kMaxRank) return reply.fail(Code::kBadRequest, "too many dimensions", rank, kMaxRank);
  int32_t sizes[kMaxRank] = {};
  uint64_t elements = 1;
  for (size_t i = 0; i < rank; ++i) {
    sizes[i] = static_cast<int32_t>(request.u32());
    if (sizes[i] < 0) return reply.fail(Code::kBadRequest, "a negative size");
    elements *= static_cast<uint64_t>(sizes[i]);
    if (elements > INT32_MAX) return reply.fail(Code::kBadRequest, "too many elements");
  }
  if (!complete(request, reply) || !need_program(reply)) return;
  if (!runtime().resize_input(number, {sizes, rank})) reply.fail(runtime().failure());
}

void execute_all(Reader& request, uint16_t, Reply& reply) {
  if (!complete(request, reply) || !need_program(reply)) return;
  runtime().rewind();
  Execution execution;
  if (!execute(kToTheEnd, send_progress, &execution)) return reply.fail(runtime().failure());
  reply.body().u64(execution.ticks);
}

void step(Reader& request, uint16_t, Reply& reply) {
  const uint32_t count = request.u32();
  if (!complete(request, reply) || !need_program(reply)) return;
  Execution execution;
  if (!execute(count, send_progress, &execution)) return reply.fail(runtime().failure());
  reply.body().u32(runtime().program_counter());
  reply.body().u8(execution.done ? 1 : 0);
  reply.body().u64(execution.ticks);
}

void stats(Reader& request, uint16_t, Reply& reply) {
  if (!complete(request, reply)) return;
  const Span<const Statistic> all = statistics();
  for (size_t i = 0; i < all.size; ++i) {
    const Usage usage = all.data[i].read();
    reply.body().str(all.data[i].name);
    reply.body().u32(static_cast<uint32_t>(usage.used));
    reply.body().u32(static_cast<uint32_t>(usage.size));
  }
}

void reset(Reader& request, uint16_t, Reply& reply) {
  if (complete(request, reply)) unload_program();
}

struct Entry {
  Request type;
  void (*handle)(Reader& request, uint16_t seq, Reply& reply);
};

constexpr Entry kTable[] = {
    {Request::kHello, hello},       {Request::kWrite, write},
    {Request::kRead, read},         {Request::kFill, fill},
    {Request::kDigest, digest},     {Request::kLoad, load},
    {Request::kDescribe, describe}, {Request::kExecute, execute_all},
    {Request::kStep, step},         {Request::kStats, stats},
    {Request::kReset, reset},       {Request::kStream, open_stream},
    {Request::kData, data},         {Request::kOperators, operators},
    {Request::kResize, resize},
};

}  // namespace

void handle_request(uint8_t type, uint16_t seq, Reader request, Reply& reply) {
  for (const Entry& entry : kTable) {
    if (static_cast<uint8_t>(entry.type) != type) continue;
    entry.handle(request, seq, reply);
    if (!reply.body().ok()) reply.fail(Code::kOutOfMemory, "the answer exceeds max_payload");
    return;
  }
  reply.fail(Code::kBadRequest, "unknown request");
}

}  // namespace hil
