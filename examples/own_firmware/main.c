// A product's super-loop, with a test target on its UART.
#include "hil_target.h"
#include "machine.h"
#include "pipeline.h"

#define ALIGNED __attribute__((aligned(16)))
#define IN_PSRAM __attribute__((section(".psram"), aligned(16)))

extern uint8_t stack_bottom[], stack_top[];

// --- the product ---------------------------------------------------------------------------------

static void say(const char* text) {
  while (*text != 0) send((const uint8_t*)text++, 1);
}

// The last decision is told on the console, which is the same UART.
static void product(void) {
  static int16_t samples[FRAME];  // of a microphone that hears nothing, on QEMU
  static uint8_t told = 0xFF;
  const uint8_t heard = listen(samples);
  if (heard == told) return;
  told = heard;
  const char text[] = {'h', 'e', 'a', 'r', 'd', ' ', (char)('0' + heard), '\r', '\n', 0};
  say(text);
}

// --- the test target -----------------------------------------------------------------------------

IN_PSRAM static uint8_t program[4 << 20];
IN_PSRAM static uint8_t planned[4 << 20];
ALIGNED static uint8_t method[256 << 10];

static const hil_bank banks[] = {{"psram", {planned, sizeof planned}}};

static hil_target target = {
    .build_id = BUILD_ID,
    .configuration = "bare-metal on mps2-an386",
    .firmware = "bare-metal 1.0",
    .read = receive,
    .write = send,
    .now = now,
    .since = since,
    .tick_source = "timer",
    .program = {program, sizeof program},
    .method = {method, sizeof method},
    .banks = banks,
    .bank_count = 1,
};

int main(void) {
  start_machine();
  target.tick_hz = tick_hz;
  target.stack.data = stack_bottom;
  target.stack.size = (size_t)(stack_top - stack_bottom);
  if (hil_target_start(&target) != NULL) return 1;
  for (;;) {
    hil_target_poll();
    product();
  }
}
