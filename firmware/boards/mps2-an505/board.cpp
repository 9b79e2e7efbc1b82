#include <cstdint>

#define HIL_MPS2_OWN_CLOCK
namespace {

constexpr uintptr_t kTimer = 0x50002000;
constexpr uint32_t kClockHz = 20000000;

}  // namespace

#include "platform/mps2_board.h"
