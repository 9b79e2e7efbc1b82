#include "runner/build_identity.h"

namespace hil {

const char* build_id() { return HIL_BUILD_ID; }

const char* configuration() { return HIL_CONFIG; }

}  // namespace hil
