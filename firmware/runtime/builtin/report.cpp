#include "runtime/builtin/report.h"

namespace hil::builtin {

void clear(Failure* failure) {
  failure->code = Code::kOk;
  failure->instruction = -1;
  failure->asked = 0;
  failure->had = 0;
  failure->op[0] = 0;
  failure->message[0] = 0;
}

bool out_of_memory(Failure* failure, const char* pool, uint64_t asked, uint64_t had) {
  report(failure, Code::kOutOfMemory, "the ", pool,
         " pool is too small: the program needs at least ", asked, " bytes of it, the target has ",
         had);
  failure->asked = asked;
  failure->had = had;
  return false;
}

}  // namespace hil::builtin
