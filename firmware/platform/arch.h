// The differences between ARMv6-M, v7-M and v8-M that the platform code cares about, and the system
// registers it touches. Names are CMSIS's.
#pragma once

#include <cstdint>

#if __ARM_ARCH_ISA_THUMB >= 2
#define HIL_MAINLINE 1  // configurable faults, CFSR, HFSR, VTOR
#else
#define HIL_MAINLINE 0  // ARMv6-M, ARMv8-M Baseline
#endif

#if HIL_MAINLINE && __ARM_ARCH >= 8
#define HIL_STACK_LIMIT 1  // MSPLIM, PSPLIM
#else
#define HIL_STACK_LIMIT 0
#endif

#if HIL_MAINLINE
#define HIL_VECTORS_ALIGNMENT 1024  // for up to 240 interrupts
#else
#define HIL_VECTORS_ALIGNMENT 256  // for 32
#endif

#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)  // MVE uses the same registers
#define HIL_FPU 1
#else
#define HIL_FPU 0
#endif

namespace hil::arch {

inline volatile uint32_t& reg(uintptr_t address) {
  return *reinterpret_cast<volatile uint32_t*>(address);
}

constexpr uintptr_t kDwtCtrl = 0xE0001000;
constexpr uintptr_t kDwtCycCnt = 0xE0001004;
constexpr uintptr_t kSysTickCtrl = 0xE000E010;
constexpr uintptr_t kSysTickLoad = 0xE000E014;
constexpr uintptr_t kSysTickVal = 0xE000E018;
constexpr uintptr_t kNvicIser = 0xE000E100;
constexpr uintptr_t kCpuid = 0xE000ED00;
constexpr uintptr_t kIcsr = 0xE000ED04;
constexpr uintptr_t kVtor = 0xE000ED08;
constexpr uintptr_t kCcr = 0xE000ED14;
constexpr uintptr_t kShcsr = 0xE000ED24;
constexpr uintptr_t kCfsr = 0xE000ED28;
constexpr uintptr_t kHfsr = 0xE000ED2C;
constexpr uintptr_t kMmfar = 0xE000ED34;
constexpr uintptr_t kBfar = 0xE000ED38;
constexpr uintptr_t kMpuType = 0xE000ED90;
constexpr uintptr_t kMpuCtrl = 0xE000ED94;
constexpr uintptr_t kMpuRnr = 0xE000ED98;
constexpr uintptr_t kMpuRbar = 0xE000ED9C;
constexpr uintptr_t kMpuRasr = 0xE000EDA0;  // PMSAv6, PMSAv7
constexpr uintptr_t kMpuRlar = 0xE000EDA0;  // PMSAv8
constexpr uintptr_t kMpuMair0 = 0xE000EDC0;
constexpr uintptr_t kDemcr = 0xE000EDFC;
constexpr uintptr_t kFpccr = 0xE000EF34;

constexpr uint32_t kDemcrTrcEna = 1u << 24;
constexpr uint32_t kDwtCtrlCycCntEna = 1u << 0;
constexpr uint32_t kSysTickEnable = 7;  // CLKSOURCE processor, TICKINT, ENABLE
constexpr uint32_t kIcsrPendStSet = 1u << 26;
constexpr uint32_t kCcrDiv0Trp = 1u << 4;
constexpr uint32_t kShcsrFaultEnables = 7u << 16;  // USGFAULTENA, BUSFAULTENA, MEMFAULTENA
constexpr uint32_t kCfsrMStkErr = 1u << 4;
constexpr uint32_t kCfsrStkErr = 1u << 12;
constexpr uint32_t kCfsrStkOf = 1u << 20;
constexpr uint32_t kFpccrLspAct = 1u << 0;
constexpr uint32_t kMpuTypeDRegion = 0xFFu << 8;
constexpr uint32_t kMpuCtrlEnable = 1u << 0;
constexpr uint32_t kMpuCtrlPrivDefEna = 1u << 2;
constexpr uint32_t kExcReturnBasicFrame = 1u << 4;
constexpr uint32_t kXpsrStackAlign = 1u << 9;

inline void enable_interrupt(uint32_t number) {
  reg(kNvicIser + 4 * (number / 32)) = 1u << (number % 32);
}

// Returns what restore_interrupts() takes.
inline uint32_t mask_interrupts() {
  uint32_t masked;
  asm volatile("mrs %0, primask\ncpsid i" : "=r"(masked)::"memory");
  return masked;
}

inline void restore_interrupts(uint32_t masked) {
  asm volatile("msr primask, %0" ::"r"(masked) : "memory");
}

inline uint32_t ipsr() {
  uint32_t value;
  asm volatile("mrs %0, ipsr" : "=r"(value));
  return value & 0x1FF;
}

}  // namespace hil::arch
