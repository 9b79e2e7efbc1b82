#pragma once

namespace hil {

// From here on logs, faults and fatal errors are printed for people, not sent as events.
void use_plain_text();

}  // namespace hil
