// The start-up from reset to runner_main(). Thread mode runs on the process stack; the main stack
// serves handlers only, so a fault handler has room even after the thread's stack overflowed.
#include <cstdint>

#include "platform/arch.h"
#include "platform/board.h"
#include "platform/console.h"
#include "platform/host_files.h"
#include "platform/mpu.h"
#include "platform/runner_main.h"
#include "platform/ticks.h"

extern "C" {
extern uint32_t __handler_stack_top[];
extern const uint32_t __data_load[];
extern uint32_t __data_start[];
extern uint32_t __data_end[];
extern uint32_t __bss_start[];
extern uint32_t __bss_end[];
using Constructor = void (*)();
extern const Constructor __init_array_start[];
extern const Constructor __init_array_end[];

void Reset_Handler();
void Fault_Handler();
void SysTick_Handler();
}

namespace {

using Handler = void (*)();

constexpr int kMaxArguments = 40;

struct VectorTable {
  uint32_t* initial_sp;
  Handler handlers[15];
};

// Fault_Handler serves everything that is never meant to happen, and reports IPSR. A board's
// interrupts follow, in .vectors.interrupts: the alignment is that of a table of 240 (Armv7-M ARM,
// B3.2.5).
[[gnu::section(".vectors"), gnu::used,
  gnu::aligned(HIL_VECTORS_ALIGNMENT)]] const VectorTable vectors = {
    __handler_stack_top,
    {Reset_Handler, Fault_Handler, Fault_Handler, Fault_Handler, Fault_Handler, Fault_Handler,
     Fault_Handler, Fault_Handler, Fault_Handler, Fault_Handler, Fault_Handler, Fault_Handler,
     Fault_Handler, Fault_Handler, SysTick_Handler}};

void enable_faults() {
#if HIL_MAINLINE
  using namespace hil::arch;
  reg(kVtor) = reinterpret_cast<uintptr_t>(&vectors);
  reg(kShcsr) = reg(kShcsr) | kShcsrFaultEnables;
  reg(kCcr) = reg(kCcr) | kCcrDiv0Trp;
#endif
}

void run_constructors() {
  for (const Constructor* c = __init_array_start; c != __init_array_end; ++c) (*c)();
}

}  // namespace

extern "C" void hil_init_memory() {
  const uint32_t* load = __data_load;
  for (uint32_t* p = __data_start; p != __data_end; ++p) *p = *load++;
  for (uint32_t* p = __bss_start; p != __bss_end; ++p) *p = 0;
}

extern "C" [[noreturn]] void hil_start() {
  enable_faults();
  hil::protect_memory();
  hil::prepare_target();
  run_constructors();
  hil::board_init();
  hil::ticks_init();
  const char* argv[kMaxArguments];
  const int argc = hil::command_arguments(argv, kMaxArguments);
  hil::system_exit(hil::runner_main(argc, argv));
}

// Sets the main stack pointer itself: a loader may jump here without a reset. The FPU comes on
// before any compiled code, which may move memory through its registers.
extern "C" [[gnu::naked, gnu::used]] void Reset_Handler() {
  asm volatile(
      "ldr r0, =__handler_stack_top\n"
      "msr msp, r0\n"
#if HIL_FPU
      "ldr r0, =0xE000ED88\n"  // CPACR
      "ldr r1, [r0]\n"
      "orr r1, r1, #(0xF << 20)\n"
      "str r1, [r0]\n"
      "dsb\n"
      "isb\n"
#endif
      "bl hil_init_memory\n"
#if HIL_STACK_LIMIT
      "ldr r0, =__handler_stack_bottom\n"
      "msr msplim, r0\n"
      "ldr r0, =__stack_bottom\n"
      "msr psplim, r0\n"
#endif
      "ldr r0, =__stack_top\n"
      "msr psp, r0\n"
      "movs r0, #2\n"  // CONTROL.SPSEL
      "msr control, r0\n"
      "isb\n"
      "bl hil_start\n");
}
