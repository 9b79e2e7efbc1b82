#include "target_library/hil_target.h"

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
      "ldr r3, =hil_target_fault\n"
      "bx r3\n");
}
