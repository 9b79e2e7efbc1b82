// libFuzzer: bytes as a program. Load a method, inputs to zero, a bounded number of steps, read
// every value; then another one. The program lies in a block of its own size and the rest of the
// planned pool is poisoned, so a byte too far is a report here, which between the runner's static
// pools it would not be.
#include <sanitizer/asan_interface.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "runtime/arenas.h"
#include "runtime/runtime.h"

namespace {

constexpr size_t kAlignment = 16;
constexpr size_t kPlannedPool = 1 << 16;
constexpr size_t kMethodPool = 1 << 16;
constexpr const char* kMethods[] = {"", "encode"};  // the first, and one that a seed has besides
constexpr int kMaxSteps = 256;                      // a program may jump in circles for ever

alignas(kAlignment) uint8_t planned_pool[kPlannedPool];
alignas(kAlignment) uint8_t method_pool[kMethodPool];
volatile uint8_t sink;

void read_all(const hil::ValueView& view) {
  uint8_t sum = 0;
  for (size_t i = 0; i < view.data.size; ++i) sum = static_cast<uint8_t>(sum + view.data.data[i]);
  sink = sum;
}

void clear_inputs(hil::Runtime& runtime) {
  hil::ValueView view;
  for (uint32_t i = 0; i < runtime.shape().inputs; ++i) {
    if (!runtime.input(i, &view)) std::abort();
    if (view.writable && view.data.size > 0) std::memset(view.data.data, 0, view.data.size);
  }
}

void run(hil::Runtime& runtime) {
  if (runtime.shape().instructions == 0) return;
  bool done = false;
  for (int i = 0; i < kMaxSteps && !done; ++i) {
    if (!runtime.step(&done)) return;
  }
}

void read_values(hil::Runtime& runtime) {
  hil::ValueView view;
  for (uint32_t i = 0; i < runtime.shape().values; ++i) {
    if (!runtime.value(i, &view)) std::abort();
    read_all(view);
  }
  for (uint32_t i = 0; i < runtime.shape().outputs; ++i) {
    if (!runtime.output(i, &view)) std::abort();
    read_all(view);
  }
}

void use(hil::Runtime& runtime) {
  const size_t used = runtime.arenas().planned_bytes();
  std::memset(planned_pool, 0xA5, used);
  ASAN_POISON_MEMORY_REGION(planned_pool + used, kPlannedPool - used);
  clear_inputs(runtime);
  run(runtime);
  read_values(runtime);
  ASAN_UNPOISON_MEMORY_REGION(planned_pool, kPlannedPool);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  void* place = nullptr;
  if (posix_memalign(&place, kAlignment, size) != 0) return 0;
  auto* program = static_cast<uint8_t*>(place);
  if (size > 0) std::memcpy(program, data, size);
  hil::Runtime& runtime = hil::runtime();
  const hil::Bank bank = {"host", {planned_pool, kPlannedPool}};
  runtime.init({&bank, 1}, {method_pool, kMethodPool}, {});
  for (const char* method : kMethods) {
    if (runtime.load({program, size}, method)) use(runtime);
  }
  runtime.unload();
  std::free(program);
  return 0;
}
