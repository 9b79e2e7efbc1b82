#include "platform/runner_main.h"

#include "runner/executor.h"
#include "runner/one_shot.h"
#include "runner/server.h"

namespace hil {

int runner_main(int argc, const char* const* argv) {
  init_runtime();
  return wants_one_shot(argc, argv) ? one_shot(argc, argv) : serve();
}

}  // namespace hil
