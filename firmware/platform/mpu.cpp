#include "platform/mpu.h"

#include <cstdint>

#include "platform/arch.h"

extern "C" {
extern const uint32_t __text_start[];
extern const uint32_t __text_end[];
extern uint32_t __stack_guard[];
extern uint32_t __stack_bottom[];
}

namespace {

using namespace hil::arch;

uint32_t address(const uint32_t* symbol) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(symbol));
}

// Addresses in no region keep the default map. The MPU is off in HardFault and NMI.
void enable() {
  reg(kMpuCtrl) = kMpuCtrlPrivDefEna | kMpuCtrlEnable;
  asm volatile("dsb\nisb" ::: "memory");
}

#if __ARM_ARCH >= 8

constexpr uint32_t kNullPage = 4096;

// The stack has a limit register, so the MPU protects only memory that must not be written.
void make_read_only(uint32_t number, uint32_t start, uint32_t end) {
  constexpr uint32_t kReadOnly = 2u << 1;  // RBAR.AP, privileged
  constexpr uint32_t kEnable = 1u << 0;
  reg(kMpuRnr) = number;
  reg(kMpuRbar) = start | kReadOnly;
  reg(kMpuRlar) = ((end - 1) & ~31u) | kEnable;
}

void set_regions() {
  reg(kMpuMair0) = 0x44;  // attribute 0: normal memory, not cacheable
  make_read_only(0, address(__text_start), address(__text_end));
  if (address(__text_start) >= kNullPage) make_read_only(1, 0, kNullPage);
}

#else

// A region is a power of two in size, and aligned to it.
void set_region(uint32_t number, uint32_t start, uint32_t log2_size, uint32_t attributes) {
  constexpr uint32_t kEnable = 1u << 0;
  reg(kMpuRnr) = number;
  reg(kMpuRbar) = start;
  reg(kMpuRasr) = attributes | (log2_size - 1) << 1 | kEnable;
}

constexpr uint32_t kNoAccess = 1u << 28;            // XN, AP 0
constexpr uint32_t kNormal = 1u << 19 | 1u << 18;   // TEX, S: not cacheable, shareable
constexpr uint32_t kReadOnly = 5u << 24 | kNormal;  // AP: privileged

void set_regions() {
  set_region(0, address(__stack_guard), 12, kNoAccess | kNormal);
  // The largest region that ends within the code: data may follow the code in the same memory.
  const uint32_t size = address(__text_end) - address(__text_start);
  uint32_t log2_size = 12;
  while ((2u << log2_size) <= size) ++log2_size;
  if (size < (1u << log2_size) || address(__text_start) % (1u << log2_size) != 0) return;
  set_region(1, address(__text_start), log2_size, kReadOnly);
}

#endif

}  // namespace

namespace hil {

void protect_memory() {
  constexpr uint32_t kRegionsUsed = 2;
  if ((reg(kMpuType) & kMpuTypeDRegion) >> 8 < kRegionsUsed) return;
  set_regions();
  enable();
}

// The MPU's regions of Armv8-M leave the stack to its limit register, which Baseline has not.
bool stack_is_guarded() {
#if HIL_STACK_LIMIT
  return true;
#elif __ARM_ARCH >= 8
  return false;
#else
  return (reg(kMpuType) & kMpuTypeDRegion) != 0 && (reg(kMpuCtrl) & kMpuCtrlEnable) != 0;
#endif
}

}  // namespace hil
