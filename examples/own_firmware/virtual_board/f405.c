// The virtual board f405: USART2 and a timer of an STM32F405, as QEMU has them (ST's RM0090).
#include "machine.h"

#define REGISTER(address) (*(volatile uint32_t*)(address))
#define UART_STATE REGISTER(0x40004400)
#define UART_DATA REGISTER(0x40004404)
#define UART_DIVIDER REGISTER(0x40004408)
#define UART_CONTROL REGISTER(0x4000440C)
#define TIMER_CONTROL REGISTER(0x40000000)
#define TIMER_COUNT REGISTER(0x40000024)
#define TIMER_PRESCALER REGISTER(0x40000028)
#define CLOCKS REGISTER(0x40023840)
#define SYSTICK_CONTROL REGISTER(0xE000E010)
#define SYSTICK_RELOAD REGISTER(0xE000E014)
#define INTERRUPT_ENABLE REGISTER(0xE000E104)
#define INTERRUPT_CLEAR REGISTER(0xE000E284)
#define SYSTEM_INTERRUPTS REGISTER(0xE000ED04)

enum { RECEIVED = 1 << 5, SENT = 1 << 7, UART_ON = 1 << 13 | RECEIVED | 1 << 3 | 1 << 2 };
enum { UART_INTERRUPT = 1 << (38 - 32) };

const char configuration[] = "bare-metal on the virtual board f405";
const uint32_t tick_hz = 100000000;  // of QEMU's timer, which begins with 1 GHz

void start_machine(void) {
  CLOCKS |= 1 << 17 | 1 << 0;
  UART_DIVIDER = 17;  // of 16 MHz: 921600 baud
  UART_CONTROL = UART_ON;
  TIMER_PRESCALER = 9;
  TIMER_CONTROL = 1;
}

bool send(const uint8_t* bytes, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    while ((UART_STATE & SENT) == 0) {
    }
    UART_DATA = bytes[i];
  }
  return true;
}

uint64_t now(void) { return TIMER_COUNT; }

uint64_t since(uint64_t begin) { return TIMER_COUNT - (uint32_t)begin; }

int receive(uint8_t* bytes, size_t room) {
  size_t size = 0;
  while (size < room && (UART_STATE & RECEIVED) != 0) bytes[size++] = (uint8_t)UART_DATA;
  return (int)size;
}

// Interrupts are off: one that is pending wakes the core, and is not taken.
void sleep_a_frame(void) {
  __asm volatile("cpsid i");
  INTERRUPT_ENABLE = UART_INTERRUPT;
  SYSTICK_RELOAD = 168000 * 16;
  SYSTICK_CONTROL = 7;
  __asm volatile("wfi");
  INTERRUPT_CLEAR = UART_INTERRUPT;
  SYSTEM_INTERRUPTS = 1 << 25;
}
