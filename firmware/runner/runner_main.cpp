// The runner: this project's own firmware with the target library.
#include "platform/runner_main.h"

#include "platform/console.h"
#include "platform/stack.h"
#include "platform/ticks.h"
#include "runner/build_identity.h"
#include "runner/coverage.h"
#include "runner/one_shot.h"
#include "runner/pools.h"
#include "target_library/link.h"

namespace hil {

namespace {

hil_target target;

}  // namespace

void prepare_target() {
  target.build_id = build_id();
  target.configuration = configuration();
  link_console(&target);
  grant_pools(&target);
  grant_stacks(&target);
  target.coverage = coverage();
  hil_use_target(&target);
}

int runner_main(int argc, const char* const* argv) {
  target.now = ticks_begin;
  target.since = ticks_since;
  target.tick_source = ticks_source();
  target.tick_hz = ticks_hz();
  if (wants_one_shot(argc, argv)) return one_shot(argc, argv);
  if (const char* wrong = hil_target_start(&target)) hil_target_fatal(wrong);
  hil_target_serve();
  return 0;
}

}  // namespace hil
