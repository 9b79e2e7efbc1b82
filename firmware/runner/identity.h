#pragma once

#include <cstdint>

namespace hil {

const char* build_id();
const char* config();  // "cpu/isa/board"
uint32_t cpuid();      // SCB->CPUID, 0 on the host

}  // namespace hil
