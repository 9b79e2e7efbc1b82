#include "hil_target_zephyr.h"

#include <errno.h>
#include <zephyr/device.h>
#include <zephyr/drivers/uart.h>
#include <zephyr/kernel.h>

static const struct device* const uart = DEVICE_DT_GET(DT_CHOSEN(hil_uart));

static uint8_t ring[8192];
static uint8_t __aligned(16) program[CONFIG_HIL_TARGET_PROGRAM_SIZE];
static uint8_t __aligned(16) planned[CONFIG_HIL_TARGET_PLANNED_SIZE];
static uint8_t __aligned(16) method[CONFIG_HIL_TARGET_METHOD_SIZE];
static const hil_bank bank = {"ram", {planned, sizeof planned}};

static K_SEM_DEFINE(arrived, 0, 1);

static void take(const struct device* device, void* data) {
  ARG_UNUSED(data);
  uint8_t bytes[16];
  while (uart_irq_update(device) && uart_irq_rx_ready(device)) {
    const int size = uart_fifo_read(device, bytes, sizeof bytes);
    if (size <= 0) break;
    hil_target_received(bytes, (size_t)size);
  }
  k_sem_give(&arrived);
}

// A fault handler, which no interrupt interrupts, polls.
static void wait(void) {
  uint8_t byte;
  if (!k_is_in_isr()) {
    k_sem_take(&arrived, K_FOREVER);
  } else if (uart_poll_in(uart, &byte) == 0) {
    hil_target_received(&byte, sizeof byte);
  }
}

static bool send(const uint8_t* bytes, size_t size) {
  for (size_t i = 0; i < size; ++i) uart_poll_out(uart, bytes[i]);
  return true;
}

static uint64_t now(void) { return k_cycle_get_32(); }

static uint64_t since(uint64_t begin) { return (uint32_t)(k_cycle_get_32() - (uint32_t)begin); }

int hil_target_zephyr(hil_target* target) {
  if (!device_is_ready(uart)) return -ENODEV;
  target->ring = (hil_memory){ring, sizeof ring};
  target->wait = wait;
  target->write = send;
  target->now = now;
  target->since = since;
  target->tick_source = "timer";
  target->tick_hz = (uint32_t)sys_clock_hw_cycles_per_sec();
  target->program = (hil_memory){program, sizeof program};
  target->method = (hil_memory){method, sizeof method};
  target->banks = &bank;
  target->bank_count = 1;
  const int status = uart_irq_callback_set(uart, take);
  if (status == 0) uart_irq_rx_enable(uart);
  return status;
}
