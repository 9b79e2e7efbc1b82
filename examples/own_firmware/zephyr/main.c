// The product on Zephyr: one thread listens, and the main thread serves tests. The console is the
// same UART.
#include <zephyr/kernel.h>
#include <zephyr/sys/printk.h>

#include "hil_target_zephyr.h"
#include "pipeline.h"

static void product(void* a, void* b, void* c) {
  ARG_UNUSED(a);
  ARG_UNUSED(b);
  ARG_UNUSED(c);
  static int16_t samples[FRAME];  // of a microphone that hears nothing, on QEMU
  uint8_t told = 0xFF;
  for (;;) {
    const uint8_t heard = listen(samples);
    if (heard != told) printk("heard %u\n", heard);
    told = heard;
    k_msleep(1);
  }
}

K_THREAD_DEFINE(listening, 2048, product, NULL, NULL, NULL, 7, 0, 0);

int main(void) {
  static hil_target target = {
      .build_id = BUILD_ID,
      .configuration = CONFIG_BOARD,
      .firmware = "zephyr sample 1.0",
  };
  if (hil_target_zephyr(&target) != 0) return 1;
  const char* wrong = hil_target_start(&target);
  if (wrong != NULL) printk("%s\n", wrong);
  if (wrong == NULL) hil_target_serve();
  return 0;
}
