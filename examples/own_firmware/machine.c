// What differs between machines: a UART and a clock. This is QEMU's mps2-an386.
#include "machine.h"

const char configuration[] = "bare-metal on mps2-an386";

#define REGISTER(address) (*(volatile uint32_t*)(address))
#define SYSTICK_CONTROL REGISTER(0xE000E010)
#define SYSTICK_RELOAD REGISTER(0xE000E014)
#define INTERRUPT_ENABLE REGISTER(0xE000E100)
#define INTERRUPT_CLEAR REGISTER(0xE000E280)
#define SYSTEM_INTERRUPTS REGISTER(0xE000ED04)

// --- UART 0 of the CMSDK, Arm DDI 0479 -----------------------------------------------------------

#define UART_DATA REGISTER(0x40004000)
#define UART_STATE REGISTER(0x40004004)
#define UART_CONTROL REGISTER(0x40004008)
#define UART_INTERRUPTS REGISTER(0x4000400C)
#define UART_DIVIDER REGISTER(0x40004010)

enum {
  TRANSMITTER_IS_FULL = 1,
  RECEIVER_IS_FULL = 2,
  ON = 1 | 2,
  RECEIVER_INTERRUPTS = 8,
  RECEIVED = 2
};

static void open_uart(void) {
  UART_DIVIDER = 27;  // of 25 MHz: 921600 baud
  UART_CONTROL = ON;
}

bool send(const uint8_t* bytes, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    while ((UART_STATE & TRANSMITTER_IS_FULL) != 0) {
    }
    UART_DATA = bytes[i];
  }
  return true;
}

// --- a timer of the CMSDK ------------------------------------------------------------------------

const uint32_t tick_hz = 25000000;

static void start_timer(void) { REGISTER(0x40002008) = 1u << 7 | 1u << 1; }  // on, 32 bits

#define TICKS_LEFT REGISTER(0x40002004)

uint64_t now(void) { return ~TICKS_LEFT; }

uint64_t since(uint64_t begin) { return (uint32_t)(now() - begin); }

// The UART holds one byte, and the host waits until it is taken.
int receive(uint8_t* bytes, size_t room) {
  size_t size = 0;
  while (size < room && (UART_STATE & RECEIVER_IS_FULL) != 0) bytes[size++] = (uint8_t)UART_DATA;
  return (int)size;
}

// Interrupts are off: one that is pending wakes the core, and is not taken.
void sleep_a_frame(void) {
  __asm volatile("cpsid i");
  UART_CONTROL = ON | RECEIVER_INTERRUPTS;
  INTERRUPT_ENABLE = 1;  // of UART 0, what it receives
  SYSTICK_RELOAD = 25000 * 16;
  SYSTICK_CONTROL = 7;
  __asm volatile("wfi");
  UART_INTERRUPTS = RECEIVED;
  INTERRUPT_CLEAR = 1;
  SYSTEM_INTERRUPTS = 1 << 25;
}

void start_machine(void) {
  open_uart();
  start_timer();
}
