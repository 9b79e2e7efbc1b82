#include "runner/spaces.h"

#include "runner/executor.h"
#include "runner/pools.h"

namespace hil {

namespace {

bool refuse(Reply& reply, Code code, const char* message) {
  reply.fail(code, message);
  return false;
}

bool look_up(Space space, uint32_t index, ValueView* view) {
  switch (space) {
    case Space::kValue:
      return runtime().value(index, view);
    case Space::kInput:
      return runtime().input(index, view);
    case Space::kOutput:
      return runtime().output(index, view);
    default:
      return false;
  }
}

}  // namespace

bool find_value(uint8_t space, uint32_t index, ValueView* view, Reply& reply) {
  if (space < static_cast<uint8_t>(Space::kValue) || space > static_cast<uint8_t>(Space::kOutput)) {
    return refuse(reply, Code::kBadRequest, "not a space of values");
  }
  if (!runtime().loaded()) return refuse(reply, Code::kBadState, "no program is loaded");
  if (!look_up(static_cast<Space>(space), index, view)) {
    return refuse(reply, Code::kBadRequest, "no such value");
  }
  return true;
}

bool find_region(uint8_t space, uint32_t index, Region* region, Reply& reply) {
  const bool resident = space == static_cast<uint8_t>(Space::kResident);
  const bool single = space <= static_cast<uint8_t>(Space::kPlanned) || resident;
  if (single && index != 0) return refuse(reply, Code::kBadRequest, "index is not 0");
  if (space == static_cast<uint8_t>(Space::kProgram)) {
    *region = {program_pool(), true};
    return true;
  }
  if (resident) {
    *region = {{const_cast<uint8_t*>(resident_area().data), resident_area().size}, false};
    return true;
  }
  if (space == static_cast<uint8_t>(Space::kPlanned)) {
    if (!runtime().loaded()) return refuse(reply, Code::kBadState, "no program is loaded");
    *region = {runtime().planned(), true};
    return true;
  }
  ValueView view;
  if (!find_value(space, index, &view, reply)) return false;
  *region = {view.data, view.writable && space != static_cast<uint8_t>(Space::kOutput)};
  return true;
}

bool cut_region(Region* region, uint32_t offset, uint32_t length, Reply& reply) {
  Span<uint8_t>& bytes = region->bytes;
  if (offset > bytes.size) {
    reply.fail(Code::kBadRequest, "offset outside the space", offset, bytes.size);
    return false;
  }
  const size_t room = bytes.size - offset;
  if (length == kToTheEnd) length = static_cast<uint32_t>(room);
  if (length > room) {
    reply.fail(Code::kBadRequest, "length outside the space", length, room);
    return false;
  }
  bytes = {bytes.data + offset, length};
  return true;
}

}  // namespace hil
