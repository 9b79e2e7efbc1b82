#pragma once

namespace hil {

const char* build_id();
const char* configuration();  // "cpu/isa/board"

}  // namespace hil
