#include "runner/pools.h"

#include "memory.h"  // made of memory: in board.yaml
#include "target_library/runtime_interface.h"

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

#if HIL_SHARED_POOL
constexpr size_t kFirst = (HIL_SHARED_POOL - HIL_FIRST_BANK) / kAlignment * kAlignment;
constexpr hil_memory kPrograms = {shared, HIL_PROGRAM_POOL};
constexpr hil_memory kFirstBank = {shared + kFirst, HIL_SHARED_POOL - kFirst};
#else
constexpr hil_memory kPrograms = {program, sizeof program};
constexpr hil_memory kFirstBank = {planned, sizeof planned};
#endif

#define HIL_BANK(region, size)       \
  , {                                \
#region, { bank_##region, size } \
  }
constexpr hil_bank kBanks[] = {{HIL_FIRST_BANK_NAME, kFirstBank} HIL_FURTHER_BANKS(HIL_BANK)};
#undef HIL_BANK
constexpr size_t kBankCount = sizeof kBanks / sizeof(hil_bank);
static_assert(kBankCount <= HIL_MAX_BANKS && HIL_UNPLANNED_BANK < kBankCount);

}  // namespace

namespace hil {

void grant_pools(hil_target* target) {
  target->program = kPrograms;
  target->method = {method, sizeof method};
  target->banks = kBanks;
  target->bank_count = kBankCount;
  target->unplanned_bank = HIL_UNPLANNED_BANK;
#if HIL_TEMP_POOL
  target->temp = {temp, sizeof temp};
#endif
#if HIL_RESIDENT_SIZE
  target->resident = reinterpret_cast<const uint8_t*>(uintptr_t{HIL_RESIDENT_ADDRESS});
  target->resident_size = HIL_RESIDENT_SIZE;
#endif
}

}  // namespace hil
