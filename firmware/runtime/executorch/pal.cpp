#include "runtime/executorch/pal.h"

#include <executorch/runtime/platform/platform.h>

#include <cstring>

#include "runtime/text.h"
#include "target_library/link.h"

namespace {

constexpr size_t kMaxLine = 512;

char error[kMaxLine] = {};

hil_log_level level_of(et_pal_log_level_t level) {
  switch (level) {
    case kDebug:
      return HIL_LOG_DEBUG;
    case kError:
    case kFatal:
      return HIL_LOG_ERROR;
    default:
      return HIL_LOG_INFO;
  }
}

}  // namespace

namespace hil::executorch_runtime {

const char* first_error() { return error; }

void forget_error() { error[0] = 0; }

}  // namespace hil::executorch_runtime

// ExecuTorch's own definitions are weak.
extern "C" {

void et_pal_init(void) {}

[[noreturn]] void et_pal_abort(void) {
  char line[kMaxLine];
  hil::Text(line).add("ExecuTorch aborted", error[0] == 0 ? "" : ": ", error);
  hil_target_fatal(line);
}

et_timestamp_t et_pal_current_ticks(void) {
  const hil_target* target = hil_used_target();
  if (target == nullptr || target->now == nullptr) return 0;
  return target->since != nullptr ? target->since(0) : target->now();
}

et_tick_ratio_t et_pal_ticks_to_ns_multiplier(void) {
  const uint32_t hz = hil_used_target() != nullptr ? hil_used_target()->tick_hz : 0;
  return {1000000000, hz == 0 ? 1 : hz};
}

void et_pal_emit_log_message(et_timestamp_t, et_pal_log_level_t level, const char* filename,
                             const char*, size_t line, const char* message, size_t) {
  char text[kMaxLine];
  hil::Text(text).add(message, " (", filename, ":", line, ")");
  if (HIL_LOG_ERROR == level_of(level) && error[0] == 0) {
    std::memcpy(error, text, sizeof error);
  }
  hil_target_log(level_of(level), text);
}

// The allocators of the Method and of its kernels are the runner's; nothing may come from a heap.
void* et_pal_allocate(size_t) { return nullptr; }

void et_pal_free(void*) {}
}
