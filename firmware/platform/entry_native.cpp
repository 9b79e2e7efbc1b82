#include "platform/board.h"
#include "platform/runner_main.h"
#include "platform/ticks.h"

int main(int argc, char** argv) {
  hil::board_init();
  hil::ticks_init();
  return hil::runner_main(argc, argv);
}
