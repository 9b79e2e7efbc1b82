#include "runner/pools.h"

#include "memory.h"  // made of memory: in board.yaml

#if defined(__arm__)
// Neither loaded nor cleared: the boot need not touch megabytes.
#define HIL_POOL_SECTION(name) [[gnu::section(".noinit." name)]]
#else
#define HIL_POOL_SECTION(name)
#endif

namespace {

constexpr size_t kAlignment = 16;

#if HIL_SHARED_POOL
// Programs from its start, planned buffers at its end.
static_assert(HIL_PROGRAM_POOL <= HIL_SHARED_POOL && HIL_FIRST_BANK <= HIL_SHARED_POOL);
HIL_POOL_SECTION("program_pool") alignas(kAlignment) uint8_t shared[HIL_SHARED_POOL];
#else
HIL_POOL_SECTION("program_pool") alignas(kAlignment) uint8_t program[HIL_PROGRAM_POOL];
HIL_POOL_SECTION("bank_" HIL_FIRST_BANK_NAME) alignas(kAlignment) uint8_t planned[HIL_FIRST_BANK];
#endif
#define HIL_BANK(region, size) \
  HIL_POOL_SECTION("bank_" #region) alignas(kAlignment) uint8_t bank_##region[size];
HIL_FURTHER_BANKS(HIL_BANK)
#undef HIL_BANK
HIL_POOL_SECTION("method_pool") alignas(kAlignment) uint8_t method[HIL_METHOD_POOL];
#if HIL_TEMP_POOL
HIL_POOL_SECTION("temp_pool") alignas(kAlignment) uint8_t temp[HIL_TEMP_POOL];
#endif

#define HIL_BANK(region, size)       \
  , {                                \
#region, { bank_##region, size } \
  }
hil::Bank all_banks[] = {{HIL_FIRST_BANK_NAME, {}} HIL_FURTHER_BANKS(HIL_BANK)};
#undef HIL_BANK
constexpr size_t kBanks = sizeof all_banks / sizeof(hil::Bank);
static_assert(kBanks <= hil::kMaxBanks && HIL_UNPLANNED_BANK < kBanks);

#if HIL_SHARED_POOL

hil::Span<uint8_t> first_bank(size_t program) {
  constexpr size_t kFirst = (HIL_SHARED_POOL - HIL_FIRST_BANK) / kAlignment * kAlignment;
  const size_t end = (program + kAlignment - 1) / kAlignment * kAlignment;
  const size_t start = end > kFirst ? end : kFirst;
  return {shared + start, start < HIL_SHARED_POOL ? HIL_SHARED_POOL - start : 0};
}

#else

hil::Span<uint8_t> first_bank(size_t) { return {planned, sizeof planned}; }

#endif

}  // namespace

namespace hil {

#if HIL_SHARED_POOL
Span<uint8_t> program_pool() { return {shared, HIL_PROGRAM_POOL}; }
#else
Span<uint8_t> program_pool() { return {program, sizeof program}; }
#endif

Span<const Bank> banks(size_t program) {
  all_banks[0].memory = first_bank(program);
  all_banks[HIL_UNPLANNED_BANK].holds_unplanned = true;
  return {all_banks, kBanks};
}

Span<uint8_t> method_pool() { return {method, sizeof method}; }

Span<uint8_t> temp_pool() {
#if HIL_TEMP_POOL
  return {temp, sizeof temp};
#else
  return {};
#endif
}

Span<const uint8_t> resident_area() {
#if HIL_RESIDENT_SIZE
  return {reinterpret_cast<const uint8_t*>(uintptr_t{HIL_RESIDENT_ADDRESS}), HIL_RESIDENT_SIZE};
#else
  return {};
#endif
}

}  // namespace hil
