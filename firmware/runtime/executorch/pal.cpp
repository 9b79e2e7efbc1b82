#include "runtime/executorch/pal.h"

#include <executorch/runtime/platform/platform.h>

#include <cstring>

#include "platform/console.h"
#include "platform/fault.h"
#include "platform/ticks.h"
#include "runner/events.h"
#include "runtime/builtin/text.h"

namespace {

constexpr size_t kMaxLine = 512;

bool is_open = false;
char error[kMaxLine] = {};

hil::LogLevel level_of(et_pal_log_level_t level) {
  switch (level) {
    case kDebug:
      return hil::LogLevel::kDebug;
    case kError:
    case kFatal:
      return hil::LogLevel::kError;
    default:
      return hil::LogLevel::kInfo;
  }
}

}  // namespace

namespace hil::executorch_runtime {

void open_log() { is_open = true; }

const char* first_error() { return error; }

void forget_error() { error[0] = 0; }

}  // namespace hil::executorch_runtime

// ExecuTorch's own definitions are weak.
extern "C" {

void et_pal_init(void) {}

[[noreturn]] void et_pal_abort(void) {
  if (!is_open) hil::console_open();
  char line[kMaxLine];
  hil::builtin::Text(line).add("ExecuTorch aborted", error[0] == 0 ? "" : ": ", error);
  hil::report_fatal(line);
  hil::system_exit(hil::kExitFatal);
}

et_timestamp_t et_pal_current_ticks(void) { return hil::ticks_now(); }

et_tick_ratio_t et_pal_ticks_to_ns_multiplier(void) {
  const uint32_t hz = hil::ticks_hz();
  return {1000000000, hz == 0 ? 1 : hz};
}

void et_pal_emit_log_message(et_timestamp_t, et_pal_log_level_t level, const char* filename,
                             const char*, size_t line, const char* message, size_t) {
  char text[kMaxLine];
  hil::builtin::Text(text).add(message, " (", filename, ":", line, ")");
  if (hil::LogLevel::kError == level_of(level) && error[0] == 0) {
    std::memcpy(error, text, sizeof error);
  }
  if (is_open) hil::send_log(level_of(level), text);
}

// The allocators of the Method and of its kernels are the runner's; nothing may come from a heap.
void* et_pal_allocate(size_t) { return nullptr; }

void et_pal_free(void*) {}
}
