// A UART as the console. The receiver's interrupt fills the target's ring: the host has at most
// kRing bytes under way that are not answered (docs/protocol.md, "Lossy links"), so nothing is lost
// while a kernel runs, at whatever baud rate. Sending polls: the interrupt goes on receiving.
#include "platform/arch.h"
#include "platform/console.h"
#include "platform/host_files.h"
#include "platform/uart.h"

namespace {

constexpr size_t kRing = 8192;

uint8_t ring[kRing];
bool is_open = false;

bool write(const uint8_t* bytes, size_t size) {
  if (!is_open) hil::uart_open();
  is_open = true;
  for (size_t i = 0; i < size; ++i) hil::uart_put(bytes[i]);
  return true;
}

// A fault handler polls: no interrupt interrupts it.
void wait() {
  if (hil::arch::ipsr() != 0) {
    Uart_Handler();
    return;
  }
  // A pending interrupt ends WFI with interrupts masked too, so none can slip in before it.
  asm volatile("cpsid i" ::: "memory");
  if (!hil_target_has_received()) asm volatile("wfi");
  asm volatile("cpsie i" ::: "memory");
}

}  // namespace

extern "C" void Uart_Handler() {
  uint8_t byte;
  while (hil::uart_take(&byte)) hil_target_received(&byte, sizeof byte);
}

namespace hil {

void link_console(hil_target* target) {
  target->ring = {ring, sizeof ring};
  target->wait = wait;
  target->write = write;
}

// Nothing here ends a process.
void system_exit(int) {
  for (;;) asm volatile("wfi");
}

// There are no files and no command line behind a UART, so one-shot mode is never asked for.
int file_open(const char*, FileMode) { return kNoFile; }
size_t file_read(int, uint8_t*, size_t) { return 0; }
bool file_write(int, const uint8_t*, size_t) { return false; }
void file_close(int) {}
void print(const char*) {}
int command_arguments(const char**, int) { return 0; }

}  // namespace hil
