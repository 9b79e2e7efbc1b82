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

#ifndef PROGRAM_SIZE
#define PROGRAM_SIZE (4 << 20)
#define PLANNED_SIZE (4 << 20)
#define METHOD_SIZE (256 << 10)
#define MEMORY "psram"
#endif

IN_PSRAM static uint8_t program[PROGRAM_SIZE];
IN_PSRAM static uint8_t planned[PLANNED_SIZE];
ALIGNED static uint8_t method[METHOD_SIZE];

static const hil_bank banks[] = {{MEMORY, {planned, sizeof planned}}};

// A core that handles a fault is not woken by interrupts.
static bool handles_fault(void) {
  uint32_t exception;
  __asm volatile("mrs %0, ipsr" : "=r"(exception));
  return exception != 0;
}

static int receive_and_sleep(uint8_t* bytes, size_t room, uint32_t milliseconds) {
  for (uint32_t slept = 0;; slept += 16) {
    const int size = receive(bytes, room);
    if (size > 0 || slept >= milliseconds) return size;
    if (!handles_fault()) sleep_a_frame();
  }
}

static hil_target target = {
    .build_id = BUILD_ID,
    .configuration = configuration,
    .firmware = "bare-metal 1.0",
    .read = receive_and_sleep,
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
    sleep_a_frame();
  }
}
