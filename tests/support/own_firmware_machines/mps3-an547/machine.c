// QEMU's mps3-an547, by its secure addresses: UART 0 of the CMSDK, and the system counter.
#include "machine.h"

const char configuration[] = "bare-metal on mps3-an547";

#define REGISTER(address) (*(volatile uint32_t*)(address))
#define UART_DATA REGISTER(0x59303000)
#define UART_STATE REGISTER(0x59303004)
#define UART_CONTROL REGISTER(0x59303008)
#define UART_DIVIDER REGISTER(0x59303010)
#define COUNTER_CONTROL REGISTER(0x58100000)
#define COUNTER_LOW REGISTER(0x58000000)

enum { TRANSMITTER_IS_FULL = 1, RECEIVER_IS_FULL = 2, ON = 1 | 2 };

const uint32_t tick_hz = 32000000;

void start_machine(void) {
  UART_DIVIDER = 27;
  UART_CONTROL = ON;
  COUNTER_CONTROL = 1;
}

uint64_t now(void) { return COUNTER_LOW; }

uint64_t since(uint64_t begin) { return COUNTER_LOW - (uint32_t)begin; }

bool send(const uint8_t* bytes, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    while ((UART_STATE & TRANSMITTER_IS_FULL) != 0) {
    }
    UART_DATA = bytes[i];
  }
  return true;
}

int receive(uint8_t* bytes, size_t room) {
  size_t size = 0;
  while (size < room && (UART_STATE & RECEIVER_IS_FULL) != 0) bytes[size++] = (uint8_t)UART_DATA;
  return (int)size;
}

void sleep_a_frame(void) {}  // it polls
