// Alif Ensemble E8, Cortex-M55 HP, on its development kit. Its secure enclave starts the clocks
// before the core. Addresses and interrupt numbers: Zephyr's dts/arm/alif/ensemble and its clock
// and pin bindings.
#include "platform/board.h"

#include "platform/arch.h"
#include "platform/uart.h"

namespace {

using hil::arch::reg;

// UART4, a DesignWare 16550 with registers 4 bytes apart.
constexpr uintptr_t kUart = 0x4901C000;
constexpr uintptr_t kData = kUart + 0x00;    // divisor's low byte while DLAB is set
constexpr uintptr_t kEnable = kUart + 0x04;  // divisor's high byte while DLAB is set
constexpr uintptr_t kFifo = kUart + 0x08;
constexpr uintptr_t kLine = kUart + 0x0C;
constexpr uintptr_t kStatus = kUart + 0x14;
constexpr uintptr_t kFraction = kUart + 0xC0;  // 16ths of the divisor
constexpr uintptr_t kUartClocks = 0x4902F008;
constexpr uintptr_t kPadRx = 0x1A603000 + 4 * (12 * 8 + 1);  // P12_1
constexpr uintptr_t kPadTx = 0x1A603000 + 4 * (12 * 8 + 2);  // P12_2

constexpr uint32_t kClockHz = 400000000;
constexpr uint32_t kUartHz = 100000000;  // SYST_PCLK
constexpr uint32_t kUartInterrupt = 128;
constexpr uint32_t kPadUart = 2;          // alternate function
constexpr uint32_t kPadInput = 1u << 16;  // receiver enabled
constexpr uint32_t kDlab = 1u << 7;
constexpr uint32_t kEightBits = 3;
constexpr uint32_t kReady = 1u << 0;
constexpr uint32_t kEmpty = 1u << 5;

[[gnu::section(".vectors.interrupts"), gnu::used]] constexpr auto interrupts =
    hil::uart_vectors<kUartInterrupt>();

}  // namespace

namespace hil {

void board_init() {}

uint32_t board_clock_hz() { return kClockHz; }

void uart_open() {
  reg(kUartClocks) = reg(kUartClocks) | 1u << 12 | 1u << 4;  // UART4: from SYST_PCLK, on
  reg(kPadRx) = kPadInput | kPadUart;
  reg(kPadTx) = kPadUart;
  constexpr uint32_t kDivisor =
      (kUartHz + HIL_UART_BAUD / 2) / HIL_UART_BAUD;  // 16 samples a bit, in 16ths
  reg(kLine) = kDlab | kEightBits;
  reg(kData) = (kDivisor / 16) & 0xFF;
  reg(kEnable) = kDivisor / 16 / 256;
  reg(kFraction) = kDivisor % 16;
  reg(kLine) = kEightBits;
  reg(kFifo) = 7;    // on, and empty
  reg(kEnable) = 1;  // received data
  arch::enable_interrupt(kUartInterrupt);
}

bool uart_take(uint8_t* byte) {
  if ((reg(kStatus) & kReady) == 0) return false;
  *byte = static_cast<uint8_t>(reg(kData));
  return true;
}

void uart_put(uint8_t byte) {
  while ((reg(kStatus) & kEmpty) == 0) {
  }
  reg(kData) = byte;
}

}  // namespace hil
