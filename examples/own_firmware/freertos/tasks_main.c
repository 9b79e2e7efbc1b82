// The product on FreeRTOS: one task listens, and another serves tests.
#include "FreeRTOS.h"
#include "hil_target.h"
#include "machine.h"
#include "pipeline.h"
#include "task.h"

#define ALIGNED __attribute__((aligned(16)))
#define IN_PSRAM __attribute__((section(".psram"), aligned(16)))

IN_PSRAM static uint8_t program[4 << 20];
IN_PSRAM static uint8_t planned[4 << 20];
ALIGNED static uint8_t method[256 << 10];

static const hil_bank banks[] = {{"psram", {planned, sizeof planned}}};

static void sleep_a_tick(void) { vTaskDelay(1); }

// The UART is polled: others run meanwhile.
static int receive_and_sleep(uint8_t* bytes, size_t room, uint32_t milliseconds) {
  const TickType_t begin = xTaskGetTickCount();
  for (;;) {
    const int size = receive(bytes, room);
    if (size > 0 || milliseconds == 0) return size;
    if (milliseconds != UINT32_MAX && xTaskGetTickCount() - begin >= milliseconds) return 0;
    if (xTaskGetSchedulerState() == taskSCHEDULER_RUNNING && !xPortIsInsideInterrupt()) taskYIELD();
  }
}

static hil_target target = {
    .build_id = BUILD_ID,
    .configuration = "FreeRTOS on mps2-an386",
    .firmware = "freertos sample 1.0",
    .read = receive_and_sleep,
    .write = send,
    .now = now,
    .since = since,
    .yield = sleep_a_tick,
    .tick_source = "timer",
    .program = {program, sizeof program},
    .method = {method, sizeof method},
    .banks = banks,
    .bank_count = 1,
};

static void listen_task(void* unused) {
  static int16_t samples[FRAME];  // of a microphone that hears nothing, on QEMU
  (void)unused;
  for (;;) {
    listen(samples);
    vTaskDelay(1);
  }
}

static void serve_task(void* unused) {
  (void)unused;
  target.tick_hz = tick_hz;
  if (hil_target_start(&target) == NULL) hil_target_serve();
  vTaskSuspend(NULL);
}

int main(void) {
  static StaticTask_t listening, serving;
  static StackType_t of_listening[512], of_serving[16384];
  start_machine();
  xTaskCreateStatic(listen_task, "listen", 512, NULL, 2, of_listening, &listening);
  xTaskCreateStatic(serve_task, "serve", 16384, NULL, 1, of_serving, &serving);
  vTaskStartScheduler();
  return 1;
}
