// Reports of the end of the firmware from the platform to the runner, which defines both functions.
#pragma once

#include <cstdint>

namespace hil {

// Registers at the fault. All but `exception`, `sp` and the status words are 0 if the processor
// could not save them, as after a stack overflow.
struct FaultRecord {
  uint32_t exception = 0;  // IPSR
  bool has_status = false;
  uint32_t cfsr = 0;
  uint32_t hfsr = 0;
  uint32_t mmfar = 0;
  uint32_t bfar = 0;
  uint32_t frame[8] = {};  // r0 r1 r2 r3 r12 lr pc xpsr
  uint32_t sp = 0;         // before the exception
};

void report_fault(const FaultRecord& fault);
void report_fatal(const char* what);

}  // namespace hil
