#include "runner/identity.h"

#if defined(__arm__)
#include "platform/arch.h"
#endif

namespace hil {

const char* build_id() { return HIL_BUILD_ID; }

const char* config() { return HIL_CONFIG; }

uint32_t cpuid() {
#if defined(__arm__)
  return arch::reg(arch::kCpuid);
#else
  return 0;
#endif
}

}  // namespace hil
