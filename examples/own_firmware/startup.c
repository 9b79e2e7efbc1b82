// From reset to main(), on one stack.
#include <stdint.h>

#include "hil_target.h"

extern uint32_t stack_top[], data_load[], data_start[], data_end[], bss_start[], bss_end[];
extern void (*init_array_start[])(void);
extern void (*init_array_end[])(void);

int main(void);
void reset(void);
void fault(void);

// Of a kernel, where there is one.
__attribute__((weak, alias("fault"))) void svc_handler(void);
__attribute__((weak, alias("fault"))) void pendsv_handler(void);
__attribute__((weak, alias("fault"))) void systick_handler(void);

__attribute__((section(".vectors"), used)) static void* const vectors[16] = {
    stack_top, reset, fault, fault,       fault, fault, fault,          fault,
    fault,     fault, fault, svc_handler, fault, fault, pendsv_handler, systick_handler,
};

static void start(void) {
  const uint32_t* load = data_load;
  for (uint32_t* p = data_start; p != data_end; ++p) *p = *load++;
  for (uint32_t* p = bss_start; p != bss_end; ++p) *p = 0;
  for (void (**constructor)(void) = init_array_start; constructor != init_array_end;)
    (*constructor++)();
  main();
  for (;;) {
  }
}

// The FPU comes on before any compiled code.
__attribute__((naked)) void reset(void) {
  __asm volatile(
#if __ARM_FP || __ARM_FEATURE_MVE
      "ldr r0, =0xE000ED88\n"  // CPACR
      "ldr r1, [r0]\n"
      "orr r1, r1, #(0xF << 20)\n"
      "str r1, [r0]\n"
      "dsb\n"
      "isb\n"
#endif
      "ldr r0, =%c0\n"
      "bx r0\n" ::"i"(start));
}

__attribute__((naked)) void fault(void) {
  __asm volatile(
      "mov r1, lr\n"
      "movs r0, #4\n"  // which stack it was on
      "tst r0, r1\n"
      "bne 1f\n"
      "mrs r0, msp\n"
      "b 2f\n"
      "1: mrs r0, psp\n"
      "2: ldr r2, =hil_target_fault\n"
      "bx r2\n");
}
