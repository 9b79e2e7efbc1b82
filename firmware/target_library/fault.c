#include "target_library/link.h"

#if defined(__arm__)

#if __ARM_ARCH_ISA_THUMB >= 2
#define MAINLINE 1
#else
#define MAINLINE 0  // ARMv6-M, ARMv8-M Baseline
#endif
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)  // MVE uses the same registers
#define FPU 1
#else
#define FPU 0
#endif

#define REGISTER(address) (*(volatile uint32_t*)(uintptr_t)(address))

static const uint32_t basic_frame = 0x20;     // bytes
static const uint32_t extended_frame = 0x68;  // with s0-s15, FPSCR, VPR
static const uint32_t cfsr_stacking_failed = 1u << 4 | 1u << 12 | 1u << 20;  // MSTKERR STKERR STKOF
static const uint32_t exc_return_basic = 1u << 4;
static const uint32_t xpsr_stack_align = 1u << 9;

static bool lies_in(uintptr_t frame, hil_memory stack) {
  const uintptr_t bottom = (uintptr_t)stack.data;
  return frame >= bottom && stack.size >= basic_frame && frame <= bottom + stack.size - basic_frame;
}

static bool is_on_a_stack(uintptr_t frame) {
  const hil_target* target = hil_target_used;
  if (target->stack.size == 0) return true;  // nobody has said where stacks are
  return lies_in(frame, target->stack) || lies_in(frame, target->handler_stack);
}

static void read_status(hil_fault_record* fault) {
#if MAINLINE
  fault->has_status = true;
  fault->cfsr = REGISTER(0xE000ED28);
  fault->hfsr = REGISTER(0xE000ED2C);
  fault->mmfar = REGISTER(0xE000ED34);
  fault->bfar = REGISTER(0xE000ED38);
#else
  (void)fault;
#endif
}

static void read_frame(hil_fault_record* fault, const uint32_t* frame, uint32_t exc_return) {
  const uintptr_t address = (uintptr_t)frame;
  fault->sp = (uint32_t)address;
  if ((fault->cfsr & cfsr_stacking_failed) != 0 || address % 4 != 0) return;
  if (!is_on_a_stack(address)) return;
  for (int i = 0; i < 8; ++i) fault->frame[i] = frame[i];
  const bool basic = !FPU || (exc_return & exc_return_basic) != 0;
  fault->sp += basic ? basic_frame : extended_frame;
  if ((frame[7] & xpsr_stack_align) != 0) fault->sp += 4;
}

void hil_target_fault(const uint32_t* frame, uint32_t exc_return) {
  if (hil_target_used == NULL) {
    for (;;) {  // nobody to tell
    }
  }
#if FPU
  // A lazy save of the FP registers to an overflowed stack would fault again: FPCCR.LSPACT.
  REGISTER(0xE000EF34) = REGISTER(0xE000EF34) & ~1u;
#endif
  hil_fault_record fault = {0};
  uint32_t ipsr;
  __asm volatile("mrs %0, ipsr" : "=r"(ipsr));
  fault.exception = ipsr & 0x1FF;
  read_status(&fault);
  read_frame(&fault, frame, exc_return);
  hil_end_with_fault(&fault);
}

#endif
