#include "hil_target_zephyr.h"

#include <errno.h>
#include <zephyr/device.h>
#include <zephyr/drivers/uart.h>
#include <zephyr/fatal.h>
#include <zephyr/kernel.h>
#include <zephyr/sys/ring_buffer.h>
#if __has_include(<zephyr/version.h>)
#include <zephyr/version.h>
#else
#include <version.h>
#endif

static const struct device* const uart = DEVICE_DT_GET(DT_CHOSEN(hil_uart));

static uint8_t __aligned(16) program[CONFIG_HIL_TARGET_PROGRAM_SIZE];
static uint8_t __aligned(16) planned[CONFIG_HIL_TARGET_PLANNED_SIZE];
static uint8_t __aligned(16) method[CONFIG_HIL_TARGET_METHOD_SIZE];
static const hil_bank bank = {"ram", {planned, sizeof planned}};

RING_BUF_DECLARE(received, 8192);
static K_SEM_DEFINE(arrived, 0, 1);

static void take(const struct device* device, void* data) {
  ARG_UNUSED(data);
  uint8_t bytes[16];
  while (uart_irq_update(device) && uart_irq_rx_ready(device)) {
    const int size = uart_fifo_read(device, bytes, sizeof bytes);
    if (size <= 0) break;
    ring_buf_put(&received, bytes, (uint32_t)size);
  }
  k_sem_give(&arrived);
}

// A byte that came before the interrupt was on raises none, and keeps a receiver of one byte full.
static void take_early(void) {
  const unsigned int key = irq_lock();
  uint8_t byte;
  while (uart_poll_in(uart, &byte) == 0) ring_buf_put(&received, &byte, sizeof byte);
  irq_unlock(key);
}

static int receive(uint8_t* bytes, size_t room, uint32_t milliseconds) {
  if (k_is_in_isr()) {  // a fault handler, which no interrupt interrupts
    while (uart_poll_in(uart, bytes) != 0) {
    }
    return 1;
  }
  const k_timeout_t timeout = milliseconds == UINT32_MAX ? K_FOREVER : K_MSEC(milliseconds);
  int size = 0;
  do {
    size = (int)ring_buf_get(&received, bytes, (uint32_t)room);
  } while (size == 0 && milliseconds != 0 && k_sem_take(&arrived, timeout) == 0);
  return size;
}

// No thread that prints on the same UART comes in between.
static bool send(const uint8_t* bytes, size_t size) {
  const bool in_thread = !k_is_in_isr();
  if (in_thread) k_sched_lock();
  for (size_t i = 0; i < size; ++i) uart_poll_out(uart, bytes[i]);
  if (in_thread) k_sched_unlock();
  return true;
}

static uint64_t now(void) { return k_cycle_get_32(); }

static uint64_t since(uint64_t begin) { return (uint32_t)(k_cycle_get_32() - (uint32_t)begin); }

// Lets another thread run while one waits for a frame: the one that serves may have a lower
// priority.
static void yield(void) { k_sleep(K_TICKS(1)); }

#if CONFIG_HIL_TARGET_FAULTS && CONFIG_ARM
#if KERNEL_VERSION_NUMBER < 0x30700  // 3.7.0
void k_sys_fatal_error_handler(unsigned int reason, const z_arch_esf_t* frame)
#else
void k_sys_fatal_error_handler(unsigned int reason, const struct arch_esf* frame)
#endif
{
  // Zephyr's copy of what the processor pushed: without the FPU's registers.
  if (reason == K_ERR_CPU_EXCEPTION && frame != NULL) {
    hil_target_fault((const uint32_t*)&frame->basic, 0xFFFFFFFD);
  }
  hil_target_fatal(reason == K_ERR_STACK_CHK_FAIL ? "a thread's stack overflowed" : "kernel panic");
}
#endif

int hil_target_zephyr(hil_target* target) {
  if (!device_is_ready(uart)) return -ENODEV;
  target->read = receive;
  target->write = send;
  target->now = now;
  target->since = since;
  target->yield = yield;
  target->tick_source = "timer";
  target->tick_hz = (uint32_t)sys_clock_hw_cycles_per_sec();
  target->program = (hil_memory){program, sizeof program};
  target->method = (hil_memory){method, sizeof method};
  target->banks = &bank;
  target->bank_count = 1;
  const int status = uart_irq_callback_set(uart, take);
  if (status != 0) return status;
  uart_irq_rx_enable(uart);
  take_early();
  return 0;
}
