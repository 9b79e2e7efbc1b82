// QEMU's microbit: the UART and the first timer of an nRF51 (Nordic's nRF51 Series Reference
// Manual).
#include "machine.h"

const char configuration[] = "bare-metal on microbit";

#define REGISTER(address) (*(volatile uint32_t*)(address))
#define UART_START_RECEIVER REGISTER(0x40002000)
#define UART_START_TRANSMITTER REGISTER(0x40002008)
#define UART_RECEIVED REGISTER(0x40002108)
#define UART_SENT REGISTER(0x4000211C)
#define UART_ENABLE REGISTER(0x40002500)
#define UART_RXD REGISTER(0x40002518)
#define UART_TXD REGISTER(0x4000251C)
#define TIMER_START REGISTER(0x40008000)
#define TIMER_CAPTURE REGISTER(0x40008040)
#define TIMER_BITS REGISTER(0x40008508)
#define TIMER_PRESCALER REGISTER(0x40008510)
#define TIMER_CAPTURED REGISTER(0x40008540)

const uint32_t tick_hz = 16000000;

void start_machine(void) {
  UART_ENABLE = 4;
  UART_START_RECEIVER = 1;
  UART_START_TRANSMITTER = 1;
  TIMER_BITS = 3;  // 32
  TIMER_PRESCALER = 0;
  TIMER_START = 1;
}

static uint32_t ticks(void) {
  TIMER_CAPTURE = 1;
  return TIMER_CAPTURED;
}

uint64_t now(void) { return ticks(); }

uint64_t since(uint64_t begin) { return ticks() - (uint32_t)begin; }

bool send(const uint8_t* bytes, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    UART_SENT = 0;
    UART_TXD = bytes[i];
    while (UART_SENT == 0) {
    }
  }
  return true;
}

int receive(uint8_t* bytes, size_t room) {
  size_t size = 0;
  while (size < room && UART_RECEIVED != 0) {
    UART_RECEIVED = 0;
    bytes[size++] = (uint8_t)UART_RXD;
  }
  return (int)size;
}

void sleep_a_frame(void) {}  // it polls
