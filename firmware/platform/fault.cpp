#include "platform/fault.h"

#include "platform/arch.h"
#include "platform/console.h"

extern "C" {
extern uint32_t __stack_bottom[];
extern uint32_t __stack_top[];
extern uint32_t __handler_stack_bottom[];
extern uint32_t __handler_stack_top[];
}

namespace {

using namespace hil::arch;

constexpr uint32_t kBasicFrame = 0x20;     // bytes
constexpr uint32_t kExtendedFrame = 0x68;  // with s0-s15, FPSCR, VPR

bool lies_in(uintptr_t frame, const uint32_t* bottom, const uint32_t* top) {
  return frame >= reinterpret_cast<uintptr_t>(bottom) &&
         frame <= reinterpret_cast<uintptr_t>(top) - kBasicFrame;
}

void read_status(hil::FaultRecord& fault) {
#if HIL_MAINLINE
  fault.has_status = true;
  fault.cfsr = reg(kCfsr);
  fault.hfsr = reg(kHfsr);
  fault.mmfar = reg(kMmfar);
  fault.bfar = reg(kBfar);
#else
  (void)fault;
#endif
}

bool frame_is_valid(uintptr_t frame, const hil::FaultRecord& fault) {
  if ((fault.cfsr & (kCfsrMStkErr | kCfsrStkErr | kCfsrStkOf)) != 0) return false;
  return frame % 4 == 0 && (lies_in(frame, __stack_bottom, __stack_top) ||
                            lies_in(frame, __handler_stack_bottom, __handler_stack_top));
}

uint32_t stack_before(uintptr_t frame, uint32_t xpsr, uint32_t exc_return) {
  const bool basic = !HIL_FPU || (exc_return & kExcReturnBasicFrame) != 0;
  return static_cast<uint32_t>(frame) + (basic ? kBasicFrame : kExtendedFrame) +
         ((xpsr & kXpsrStackAlign) != 0 ? 4 : 0);
}

void read_frame(hil::FaultRecord& fault, const uint32_t* frame, uint32_t exc_return) {
  const auto address = reinterpret_cast<uintptr_t>(frame);
  fault.sp = static_cast<uint32_t>(address);
  if (!frame_is_valid(address, fault)) return;
  for (int i = 0; i < 8; ++i) fault.frame[i] = frame[i];
  fault.sp = stack_before(address, frame[7], exc_return);
}

}  // namespace

extern "C" [[noreturn, gnu::used]] void hil_fault_entry(const uint32_t* frame,
                                                        uint32_t exc_return) {
  static volatile bool reporting = false;
  if (reporting) hil::system_exit(hil::kExitFault);
  reporting = true;
#if HIL_FPU
  // A lazy save of the FP registers to an overflowed stack would fault again.
  reg(kFpccr) = reg(kFpccr) & ~kFpccrLspAct;
#endif
  hil::FaultRecord fault;
  fault.exception = ipsr();
  read_status(fault);
  read_frame(fault, frame, exc_return);
  hil::report_fault(fault);
  hil::system_exit(hil::kExitFault);
}

// EXC_RETURN bit 2 tells which stack holds the frame. Handlers run on the main stack, which is not
// the one that overflows.
extern "C" [[gnu::naked, gnu::used]] void Fault_Handler() {
  asm volatile(
      "mrs r0, msp\n"
      "mov r1, lr\n"
      "movs r2, #4\n"
      "tst r1, r2\n"
      "beq 1f\n"
      "mrs r0, psp\n"
      "1:\n"
      "ldr r3, =hil_fault_entry\n"
      "bx r3\n");
}
