// RP2040 with its crystal and UART0. Registers: Raspberry Pi's RP2040 datasheet.
#include "platform/board.h"

#include <cstddef>

#include "platform/arch.h"
#include "platform/uart.h"

namespace {

using hil::arch::reg;

// --- the second stage of the boot, which the boot ROM checks and runs from RAM (datasheet, 2.8.1)
// ---

constexpr size_t kBoot2Halves = 126;

// clang-format off
constexpr uint16_t kBoot2Code[] = {
    0x4b0a,          // ldr  r3, [pc, #40]   XIP_SSI
    0x2100,          // movs r1, #0
    0x6099,          // str  r1, [r3, #8]    SSIENR: off while it is set up
    0x2104,          // movs r1, #4
    0x6159,          // str  r1, [r3, #20]   BAUDR: a quarter of the system clock
    0x4909,          // ldr  r1, [pc, #36]
    0x6019,          // str  r1, [r3, #0]    CTRLR0: EEPROM reads of 32 bits, plain SPI
    0x2100,          // movs r1, #0
    0x6059,          // str  r1, [r3, #4]    CTRLR1: one word a read
    0x4908,          // ldr  r1, [pc, #32]
    0x4a08,          // ldr  r2, [pc, #32]
    0x6011,          // str  r1, [r2, #0]    SPI_CTRLR0: command 03h, 24 bits of address
    0x2101,          // movs r1, #1
    0x6099,          // str  r1, [r3, #8]    SSIENR: on
    0x4807,          // ldr  r0, [pc, #28]   the vector table
    0x4908,          // ldr  r1, [pc, #32]   VTOR
    0x6008,          // str  r0, [r1, #0]
    0xc806,          // ldmia r0!, {r1, r2}
    0xf381, 0x8808,  // msr  MSP, r1
    0x4710,          // bx   r2
    0x0000,
    0x0000, 0x1800,  // 0x18000000
    0x0300, 0x001f,  // 0x001F0300
    0x0218, 0x0300,  // 0x03000218
    0x00f4, 0x1800,  // 0x180000F4
    0x0100, 0x1000,  // 0x10000100
    0xed08, 0xe000,  // 0xE000ED08
};
// clang-format on

struct Boot2 {
  uint16_t code[kBoot2Halves];
  uint32_t crc;
};
static_assert(sizeof(Boot2) == 256);

// CRC-32, most significant bit first, neither inverted nor reflected (datasheet, 2.8.1.3.1).
constexpr uint32_t add_to_crc(uint32_t crc, uint8_t byte) {
  crc ^= static_cast<uint32_t>(byte) << 24;
  for (int bit = 0; bit < 8; ++bit) crc = (crc << 1) ^ ((crc >> 31) != 0 ? 0x04C11DB7u : 0);
  return crc;
}

constexpr Boot2 make_boot2() {
  Boot2 made{};
  size_t size = 0;
  for (const uint16_t half : kBoot2Code) made.code[size++] = half;
  made.crc = 0xFFFFFFFF;
  for (const uint16_t half : made.code) {
    made.crc = add_to_crc(made.crc, static_cast<uint8_t>(half));
    made.crc = add_to_crc(made.crc, static_cast<uint8_t>(half >> 8));
  }
  return made;
}

[[gnu::section(".boot2"), gnu::used]] const Boot2 boot2 = make_boot2();

// --- clocks ---

constexpr uintptr_t kClear = 0x3000;  // added to a register's address: clears the bits written
constexpr uintptr_t kResets = 0x4000C000;
constexpr uintptr_t kResetsDone = 0x4000C008;
constexpr uintptr_t kRefControl = 0x40008030;
constexpr uintptr_t kRefSelected = 0x40008038;
constexpr uintptr_t kSysControl = 0x4000803C;
constexpr uintptr_t kSysSelected = 0x40008044;
constexpr uintptr_t kPeriControl = 0x40008048;
constexpr uintptr_t kXoscControl = 0x40024000;
constexpr uintptr_t kXoscStatus = 0x40024004;
constexpr uintptr_t kXoscStartup = 0x4002400C;
constexpr uintptr_t kPllStatus = 0x40028000;
constexpr uintptr_t kPllPower = 0x40028004;
constexpr uintptr_t kPllFeedback = 0x40028008;
constexpr uintptr_t kPllDividers = 0x4002800C;

constexpr uint32_t kResetIoBank0 = 1u << 5;
constexpr uint32_t kResetPadsBank0 = 1u << 8;
constexpr uint32_t kResetPllSys = 1u << 12;
constexpr uint32_t kResetUart0 = 1u << 22;
constexpr uint32_t kTopBit = 1u << 31;                 // XOSC stable, PLL locked
constexpr uint32_t kPllPowerDown = 1u << 0 | 1u << 5;  // all of it, its oscillator
constexpr uint32_t kPllPostPowerDown = 1u << 3;
constexpr uint32_t kRingHz = 6500000;  // give or take
constexpr uint32_t kCrystalHz = 12000000;
constexpr uint32_t kPllHz = 125000000;  // 12 MHz * 125 / 6 / 2
constexpr uint32_t kPatience = 100000;  // reads; a crystal takes a millisecond

uint32_t clock_hz = kRingHz;

bool becomes(uintptr_t address, uint32_t mask, uint32_t value) {
  for (uint32_t i = 0; i < kPatience; ++i) {
    if ((reg(address) & mask) == value) return true;
  }
  return false;
}

void release(uint32_t blocks) {
  reg(kResets + kClear) = blocks;
  becomes(kResetsDone, blocks, blocks);
}

bool start_crystal() {
  reg(kXoscStartup) = 47;        // 256 cycles each: 1 ms
  reg(kXoscControl) = 0xFABAA0;  // enabled, 1 to 15 MHz
  if (!becomes(kXoscStatus, kTopBit, kTopBit)) return false;
  reg(kRefControl) = 2;
  return becomes(kRefSelected, 4, 4);
}

bool start_pll() {
  release(kResetPllSys);
  reg(kPllStatus) = 1;  // the crystal's clock, undivided
  reg(kPllFeedback) = 125;
  reg(kPllPower + kClear) = kPllPowerDown;
  if (!becomes(kPllStatus, kTopBit, kTopBit)) return false;
  reg(kPllDividers) = 6u << 16 | 2u << 12;
  reg(kPllPower + kClear) = kPllPostPowerDown;
  reg(kSysControl) = 0;  // auxiliary source: the PLL; chosen in a second step
  reg(kSysControl) = 1;
  return becomes(kSysSelected, 2, 2);
}

// --- UART0, a PL011 ---

constexpr uintptr_t kUart = 0x40034000;
constexpr uintptr_t kUartData = kUart + 0x00;
constexpr uintptr_t kUartFlags = kUart + 0x18;
constexpr uintptr_t kUartWhole = kUart + 0x24;
constexpr uintptr_t kUartFraction = kUart + 0x28;
constexpr uintptr_t kUartLine = kUart + 0x2C;
constexpr uintptr_t kUartControl = kUart + 0x30;
constexpr uintptr_t kUartMask = kUart + 0x38;
constexpr uintptr_t kGpio0Control = 0x40014004;
constexpr uintptr_t kGpio1Control = 0x4001400C;
constexpr uint32_t kUartInterrupt = 20;
constexpr uint32_t kReceiveEmpty = 1u << 4;
constexpr uint32_t kTransmitFull = 1u << 5;

[[gnu::section(".vectors.interrupts"), gnu::used]] constexpr auto interrupts =
    hil::uart_vectors<kUartInterrupt>();

}  // namespace

namespace hil {

void board_init() {
  release(kResetIoBank0 | kResetPadsBank0);
  if (start_crystal()) clock_hz = start_pll() ? kPllHz : kCrystalHz;
  reg(kPeriControl) = 1u << 11;  // enabled, from the system clock
}

uint32_t board_clock_hz() { return clock_hz; }

void uart_open() {
  release(kResetUart0);
  reg(kGpio0Control) = 2;
  reg(kGpio1Control) = 2;
  const uint32_t divisor = (clock_hz * 4 + HIL_UART_BAUD / 2) / HIL_UART_BAUD;  // in 64ths
  reg(kUartWhole) = divisor >> 6;
  reg(kUartFraction) = divisor & 63;
  reg(kUartLine) = 3u << 5 | 1u << 4;          // 8 bits, FIFOs
  reg(kUartControl) = 1u << 9 | 1u << 8 | 1u;  // receiver, transmitter, on
  reg(kUartMask) = 1u << 6 | 1u << 4;          // a pause after bytes, a FIFO half full
  arch::enable_interrupt(kUartInterrupt);
}

bool uart_take(uint8_t* byte) {
  if ((reg(kUartFlags) & kReceiveEmpty) != 0) return false;
  *byte = static_cast<uint8_t>(reg(kUartData));
  return true;
}

void uart_put(uint8_t byte) {
  while ((reg(kUartFlags) & kTransmitFull) != 0) {
  }
  reg(kUartData) = byte;
}

}  // namespace hil
