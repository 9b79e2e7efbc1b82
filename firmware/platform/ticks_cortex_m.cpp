// Instructions, where the board has a timer and each takes the same time by it, as in QEMU with
// -icount. Else the processor's clock: counted by the DWT where there is one and it counts (ARMv6-M
// has none, QEMU's stands still), else by SysTick.
#include <numeric>

#include "platform/arch.h"
#include "platform/board.h"
#include "platform/ticks.h"

namespace {

using namespace hil::arch;

enum class Source { kInstructions, kDwt, kSysTick };

Source source = Source::kSysTick;

// --- SysTick -------------------------------------------------------------------------------------

constexpr uint32_t kReload = 0xFFFFFF;  // 24 bits, downwards

volatile uint32_t overflows = 0;

void start_systick() {
  reg(kSysTickLoad) = kReload;
  reg(kSysTickVal) = 0;
  reg(kSysTickCtrl) = kSysTickEnable;
}

uint64_t systick_now() {
  uint32_t high;
  uint32_t value;
  bool pending;
  do {
    high = overflows;
    value = reg(kSysTickVal);
    pending = (reg(kIcsr) & kIcsrPendStSet) != 0;
  } while (high != overflows);
  // Wrapped, and the interrupt has not been taken yet.
  if (pending && value > kReload / 2) ++high;
  return (static_cast<uint64_t>(high) << 24) + (kReload - value);
}

// --- DWT -----------------------------------------------------------------------------------------

#if HIL_MAINLINE

uint32_t last = 0;
uint32_t wraps = 0;

bool start_dwt() {
  reg(kDemcr) = reg(kDemcr) | kDemcrTrcEna;
  reg(kDwtCtrl) = reg(kDwtCtrl) | kDwtCtrlCycCntEna;
  const uint32_t first = reg(kDwtCycCnt);
  asm volatile("nop\nnop\nnop\nnop");
  return reg(kDwtCycCnt) != first;
}

// 32 bits wrap after seconds; SysTick's interrupt looks often enough to see each.
uint64_t dwt_now() {
  const uint32_t masked = mask_interrupts();
  const uint32_t now = reg(kDwtCycCnt);
  if (now < last) ++wraps;
  last = now;
  const uint64_t ticks = static_cast<uint64_t>(wraps) << 32 | now;
  restore_interrupts(masked);
  return ticks;
}

#else

bool start_dwt() { return false; }
uint64_t dwt_now() { return 0; }

#endif

// --- instructions --------------------------------------------------------------------------------

constexpr uint32_t kNsPerSecond = 1000000000;
constexpr uint32_t kLargestShift = 9;  // instructions take 2^shift ns; 10^9 is no multiple of 2^10
constexpr uint64_t kTimerMask = (uint64_t{1} << 40) - 1;
constexpr uint32_t kLargestReduced = 1u << 20;  // times a 40-bit count it still fits 64 bits

// An instruction takes `ticks / instructions` ticks of the board's timer, in lowest terms. A span
// of n instructions then differs from n times that by less than one tick, whenever it begins; so n
// is what is nearest, as long as an instruction takes two ticks or more.
struct InstructionTime {
  uint32_t ticks;
  uint32_t instructions;
  uint32_t hz;  // instructions a second

  uint64_t count(uint64_t timer) const { return (timer * instructions + ticks / 2) / ticks; }
};

InstructionTime instruction_time{1, 1, 0};

// 40 bits: those of the slow counter, corrected by the fast counter, which was read right before or
// after it.
uint64_t timer_ticks(uint32_t slow, uint32_t fast) {
  const uint64_t nearly = static_cast<uint64_t>(slow) << 8;
  return nearly + static_cast<uint64_t>(static_cast<int32_t>(fast - static_cast<uint32_t>(nearly)));
}

constexpr uint32_t kRounds[] = {128, 1009, 10007};

// Out of line, so that only the rounds differ.
[[gnu::noinline]] uint32_t ticks_of_loop(uint32_t rounds) {
  const uint32_t begin = hil::board_timer();
  asm volatile(
      ".syntax unified\n"
      "1: subs %0, %0, #1\n"
      "bne 1b\n"
      : "+l"(rounds)::"cc");
  return hil::board_timer() - begin;
}

// Whether loops of several lengths take what they do if each instruction takes that long.
bool agrees(const InstructionTime& time) {
  const uint32_t empty = ticks_of_loop(1);
  for (const uint32_t rounds : kRounds) {
    const int64_t measured = ticks_of_loop(rounds + 1) - empty;
    const int64_t off = measured * time.instructions - int64_t{2} * rounds * time.ticks;
    if (off <= -2 * int64_t{time.instructions} || off >= 2 * int64_t{time.instructions})
      return false;
  }
  return true;
}

bool time_instructions() {
  const uint32_t hz = hil::board_timer_hz();
  for (uint32_t shift = 0; hz != 0 && shift <= kLargestShift; ++shift) {
    const uint64_t ticks = static_cast<uint64_t>(hz) << shift;  // of 10^9 instructions
    const uint64_t divisor = std::gcd(ticks, uint64_t{kNsPerSecond});
    if (ticks / divisor >= kLargestReduced || kNsPerSecond / divisor >= kLargestReduced) continue;
    const InstructionTime time{static_cast<uint32_t>(ticks / divisor),
                               static_cast<uint32_t>(kNsPerSecond / divisor),
                               kNsPerSecond >> shift};
    if (time.ticks < 2 * time.instructions || !agrees(time)) continue;
    instruction_time = time;
    return true;
  }
  return false;
}

uint64_t clock_now() { return source == Source::kDwt ? dwt_now() : systick_now(); }

}  // namespace

extern "C" void SysTick_Handler() {
  overflows = overflows + 1;
  if (source == Source::kDwt) dwt_now();
}

namespace hil {

[[gnu::weak]] uint32_t board_timer_hz() { return 0; }
[[gnu::weak]] uint32_t board_timer() { return 0; }
[[gnu::weak]] uint32_t board_timer_slow() { return 0; }

void ticks_init() {
  if (time_instructions()) {
    source = Source::kInstructions;
    return;  // without SysTick, whose interrupt would be counted
  }
  if (start_dwt()) source = Source::kDwt;
  start_systick();
}

// The timer is read last here and first in ticks_since(), and no code between these two reads
// depends on its value: a span is exact.
uint64_t ticks_begin() {
  if (source != Source::kInstructions) return clock_now();
  const uint32_t slow = board_timer_slow();
  return timer_ticks(slow, board_timer());
}

uint64_t ticks_since(uint64_t begin) {
  if (source != Source::kInstructions) return clock_now() - begin;
  const uint32_t fast = board_timer();
  const uint64_t end = timer_ticks(board_timer_slow(), fast);
  return instruction_time.count((end - begin) & kTimerMask);
}

uint32_t ticks_hz() {
  return source == Source::kInstructions ? instruction_time.hz : board_clock_hz();
}

const char* ticks_source() {
  switch (source) {
    case Source::kInstructions:
      return "instructions";
    case Source::kDwt:
      return "DWT";
    case Source::kSysTick:
      return "SysTick";
  }
  return "none";
}

}  // namespace hil
