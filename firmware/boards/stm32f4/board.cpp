// STM32F446 (NUCLEO-F446RE) and STM32F405, with what both have. Registers: ST's RM0390 and RM0090.
#include "platform/board.h"

#include "platform/arch.h"
#include "platform/uart.h"

namespace {

using hil::arch::reg;

constexpr uintptr_t kRccCr = 0x40023800;
constexpr uintptr_t kRccPllCfgr = 0x40023804;
constexpr uintptr_t kRccCfgr = 0x40023808;
constexpr uintptr_t kRccAhb1Enr = 0x40023830;
constexpr uintptr_t kRccApb1Enr = 0x40023840;
constexpr uintptr_t kFlashAcr = 0x40023C00;
constexpr uintptr_t kGpioAModer = 0x40020000;
constexpr uintptr_t kGpioAAfrl = 0x40020020;
constexpr uintptr_t kTimer = 0x40000000;      // TIM2
constexpr uintptr_t kSlowTimer = 0x40000C00;  // TIM5
constexpr uintptr_t kTimerCount = 0x24;
constexpr uintptr_t kTimerPrescaler = 0x28;
constexpr uintptr_t kUsartSr = 0x40004400;
constexpr uintptr_t kUsartDr = 0x40004404;
constexpr uintptr_t kUsartBrr = 0x40004408;
constexpr uintptr_t kUsartCr1 = 0x4000440C;

constexpr uint32_t kPllOn = 1u << 24;
constexpr uint32_t kPllReady = 1u << 25;
constexpr uint32_t kSwitchPll = 2;      // CFGR.SW; CFGR.SWS shows it two bits higher
constexpr uint32_t kFlashFast = 0x705;  // instruction cache, data cache, prefetch, 5 wait states
constexpr uint32_t kApb1Quarter = 5u << 10;
constexpr uint32_t kApb2Half = 4u << 13;
constexpr uint32_t kUsartReceived = 1u << 5;
constexpr uint32_t kUsartEmpty = 1u << 7;
constexpr uint32_t kUsartOn = 1u << 13 | 1u << 5 | 1u << 3 | 1u << 2;  // UE, RXNEIE, TE, RE
constexpr uint32_t kUsartInterrupt = 38;

constexpr uint32_t kHsiHz = 16000000;
// HSI / 16 * 332 / 2. A quarter of it, which feeds the USART, is 45.03 times 921600; of the highest
// clock that both parts allow, 168 MHz, it would be 45.57.
constexpr uint32_t kPllHz = 166000000;
constexpr uint32_t kPllFactors = 2u << 28 | 332u << 6 | 16;
constexpr uint32_t kPatience = 100000;  // reads; a PLL locks within 200 µs, QEMU's never does
constexpr uint32_t kQemuTimerHz = 1000000000;
constexpr uint32_t kEvery256th = 255;

uint32_t clock_hz = kHsiHz;
uint32_t usart_hz = kHsiHz;

bool becomes(uintptr_t address, uint32_t mask, uint32_t value) {
  for (uint32_t i = 0; i < kPatience; ++i) {
    if ((reg(address) & mask) == value) return true;
  }
  return false;
}

// Starts the PLL from the internal oscillator, since boards differ in their crystals. The clock
// stays the oscillator's if the PLL does not lock.
void start_pll() {
  reg(kRccPllCfgr) = kPllFactors;
  reg(kRccCr) = reg(kRccCr) | kPllOn;
  if (!becomes(kRccCr, kPllReady, kPllReady)) return;
  reg(kFlashAcr) = kFlashFast;
  reg(kRccCfgr) = kApb1Quarter | kApb2Half | kSwitchPll;
  if (!becomes(kRccCfgr, 3u << 2, kSwitchPll << 2)) return;
  clock_hz = kPllHz;
  usart_hz = kPllHz / 4;
}

// Up to USART2's; the others are never enabled.
[[gnu::section(".vectors.interrupts"), gnu::used]] constexpr auto interrupts =
    hil::uart_vectors<kUsartInterrupt>();

}  // namespace

namespace hil {

void board_init() {
  start_pll();
  reg(kSlowTimer + kTimerPrescaler) = kEvery256th;
  reg(kSlowTimer + kTimerCount) = 0;
  reg(kTimer + kTimerCount) = 0;
}

uint32_t board_clock_hz() { return clock_hz; }

// Of QEMU only, where the timers run from the start, at a rate of their own. A part, whose PLL
// locks, counts cycles; should it not lock, its timers stand still, as they have no clock.
uint32_t board_timer_hz() { return clock_hz == kHsiHz ? kQemuTimerHz : 0; }

uint32_t board_timer() { return reg(kTimer + kTimerCount); }

uint32_t board_timer_slow() { return reg(kSlowTimer + kTimerCount); }

void uart_open() {
  reg(kRccAhb1Enr) = reg(kRccAhb1Enr) | 1u;                  // GPIOA
  reg(kRccApb1Enr) = reg(kRccApb1Enr) | 1u << 17;            // USART2
  reg(kGpioAModer) = (reg(kGpioAModer) & ~0xF0u) | 0xA0u;    // PA2, PA3: alternate functions
  reg(kGpioAAfrl) = (reg(kGpioAAfrl) & ~0xFF00u) | 0x7700u;  // which is USART2
  reg(kUsartBrr) = (usart_hz + HIL_UART_BAUD / 2) / HIL_UART_BAUD;
  reg(kUsartCr1) = kUsartOn;
  arch::enable_interrupt(kUsartInterrupt);
}

// Reading the data register after the status clears an overrun too.
bool uart_take(uint8_t* byte) {
  if ((reg(kUsartSr) & kUsartReceived) == 0) return false;
  *byte = static_cast<uint8_t>(reg(kUsartDr));
  return true;
}

void uart_put(uint8_t byte) {
  while ((reg(kUsartSr) & kUsartEmpty) == 0) {
  }
  reg(kUsartDr) = byte;
}

}  // namespace hil
