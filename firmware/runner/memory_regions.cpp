#include "runner/memory_regions.h"

#include "runner/coverage.h"
#include "runner/executor.h"
#include "runner/pools.h"
#include "runtime/arenas.h"

namespace hil {

namespace {

bool refuse(Reply& reply, Code code, const char* message) {
  reply.fail(code, message);
  return false;
}

bool look_up(MemoryRegion region, uint32_t index, ValueView* view) {
  switch (region) {
    case MemoryRegion::kValue:
      return runtime().value(index, view);
    case MemoryRegion::kInput:
      return runtime().input(index, view);
    case MemoryRegion::kOutput:
      return runtime().output(index, view);
    default:
      return false;
  }
}

// Writes the coverage counts anew, and gives them as a vector of bytes.
bool find_coverage(ValueView* view, Reply& reply) {
  if (!take_coverage(reply)) return false;
  view->kind = Kind::kTensor;
  view->rank = 1;
  view->data = coverage();
  view->sizes[0] = static_cast<int32_t>(view->data.size);
  return true;
}

bool find_bank(uint8_t region, uint32_t index, Memory* memory, Reply& reply) {
  if (!runtime().loaded()) return refuse(reply, Code::kBadState, "no program is loaded");
  const Arenas& arenas = runtime().arenas();
  if (index >= arenas.banks()) return refuse(reply, Code::kBadRequest, "no such bank");
  const bool whole = region == static_cast<uint8_t>(MemoryRegion::kBank);
  *memory = {whole ? arenas.bank(index) : arenas.planned(index), true};
  return true;
}

}  // namespace

bool find_value(uint8_t region, uint32_t index, ValueView* view, Reply& reply) {
  if (region == static_cast<uint8_t>(MemoryRegion::kCoverage)) return find_coverage(view, reply);
  if (region < static_cast<uint8_t>(MemoryRegion::kValue) ||
      region > static_cast<uint8_t>(MemoryRegion::kOutput)) {
    return refuse(reply, Code::kBadRequest, "not a region of values");
  }
  if (!runtime().loaded()) return refuse(reply, Code::kBadState, "no program is loaded");
  if (!look_up(static_cast<MemoryRegion>(region), index, view)) {
    return refuse(reply, Code::kBadRequest, "no such value");
  }
  return true;
}

bool find_memory(uint8_t region, uint32_t index, Memory* memory, Reply& reply) {
  const bool resident = region == static_cast<uint8_t>(MemoryRegion::kResident);
  const bool counted = region == static_cast<uint8_t>(MemoryRegion::kCoverage);
  const bool single = region == static_cast<uint8_t>(MemoryRegion::kProgram) || resident || counted;
  if (single && index != 0) return refuse(reply, Code::kBadRequest, "index is not 0");
  if (region == static_cast<uint8_t>(MemoryRegion::kProgram)) {
    *memory = {program_pool(), true};
    return true;
  }
  if (counted) {
    *memory = {coverage(), false};
    return true;
  }
  if (resident) {
    *memory = {{const_cast<uint8_t*>(resident_area().data), resident_area().size}, false};
    return true;
  }
  if (region == static_cast<uint8_t>(MemoryRegion::kPlanned) ||
      region == static_cast<uint8_t>(MemoryRegion::kBank)) {
    return find_bank(region, index, memory, reply);
  }
  ValueView view;
  if (!find_value(region, index, &view, reply)) return false;
  *memory = {view.data, view.writable && region != static_cast<uint8_t>(MemoryRegion::kOutput)};
  return true;
}

bool cut_memory(Memory* memory, uint32_t offset, uint32_t length, Reply& reply) {
  Span<uint8_t>& bytes = memory->bytes;
  if (offset > bytes.size) {
    reply.fail(Code::kBadRequest, "offset outside the region", offset, bytes.size);
    return false;
  }
  const size_t room = bytes.size - offset;
  if (length == kToTheEnd) length = static_cast<uint32_t>(room);
  if (length > room) {
    reply.fail(Code::kBadRequest, "length outside the region", length, room);
    return false;
  }
  bytes = {bytes.data + offset, length};
  return true;
}

}  // namespace hil
