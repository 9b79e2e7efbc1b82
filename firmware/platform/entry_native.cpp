#include "platform/board.h"
#include "platform/runner_main.h"
#include "platform/ticks.h"

int main(int argc, char** argv) {
  hil::prepare_target();
  hil::board_init();
  hil::ticks_init();
  return hil::runner_main(argc, argv);
}
