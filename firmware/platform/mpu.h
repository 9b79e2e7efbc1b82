#pragma once

namespace hil {

// Makes stack overflows and writes through null pointers fault, where there is an MPU.
void protect_memory();

}  // namespace hil
