#include "runner/pools.h"

#if defined(__arm__)
// Neither loaded nor cleared: the boot need not touch megabytes.
#define HIL_POOL_SECTION(name) [[gnu::section(".noinit." name)]]
#else
#define HIL_POOL_SECTION(name)
#endif

namespace {

HIL_POOL_SECTION("program_pool") alignas(16) uint8_t program[HIL_PROGRAM_POOL];
HIL_POOL_SECTION("planned_pool") alignas(16) uint8_t planned[HIL_PLANNED_POOL];
HIL_POOL_SECTION("method_pool") alignas(16) uint8_t method[HIL_METHOD_POOL];

}  // namespace

namespace hil {

Span<uint8_t> program_pool() { return {program, sizeof program}; }
Span<uint8_t> planned_pool() { return {planned, sizeof planned}; }
Span<uint8_t> method_pool() { return {method, sizeof method}; }

}  // namespace hil
