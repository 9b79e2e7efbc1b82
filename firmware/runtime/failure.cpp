#include "runtime/failure.h"

namespace hil {

void clear(Failure* failure) {
  failure->code = HIL_STATUS_OK;
  failure->instruction = -1;
  failure->requested = 0;
  failure->available = 0;
  failure->op[0] = 0;
  failure->message[0] = 0;
}

bool out_of_memory(Failure* failure, const char* pool, uint64_t requested, uint64_t available,
                   const char* region) {
  report(failure, HIL_STATUS_OUT_OF_MEMORY, "the ", pool, " pool", region == nullptr ? "" : " in ",
         region == nullptr ? "" : region, " is too small: the program needs at least ", requested,
         " bytes of it, the target has ", available);
  failure->requested = requested;
  failure->available = available;
  return false;
}

}  // namespace hil
