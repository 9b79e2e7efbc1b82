// A UART as the console. The receiver's interrupt fills a ring: the host has at most kRing bytes
// under way that are not answered (docs/protocol.md, "Lossy links"), so nothing is lost while a
// kernel runs, at whatever baud rate. Sending polls: the interrupt goes on receiving meanwhile.
#include <cstring>

#include "platform/arch.h"
#include "platform/console.h"
#include "platform/framing.h"
#include "platform/host_files.h"
#include "platform/uart.h"

namespace {

constexpr uint32_t kRing = 8192;  // a power of two: head and tail count on over 32 bits

uint8_t ring[kRing];
volatile uint32_t head = 0;  // written by the interrupt only
volatile uint32_t tail = 0;

const uint8_t* last = nullptr;
size_t last_size = 0;
uint8_t ended[hil::encoded_bound(1)];

void wait_for_byte() {
  while (head == tail) {
    // A pending interrupt ends WFI with interrupts masked too, so none can slip in before it.
    asm volatile("cpsid i" ::: "memory");
    if (head == tail) asm volatile("wfi");
    asm volatile("cpsie i" ::: "memory");
  }
}

void put(const uint8_t* data, size_t size) {
  for (size_t i = 0; i < size; ++i) hil::uart_put(data[i]);
}

}  // namespace

extern "C" void Uart_Handler() {
  uint8_t byte;
  while (hil::uart_take(&byte)) {
    const uint32_t at = head;
    if (at - tail == kRing) continue;
    ring[at % kRing] = byte;
    head = at + 1;
  }
}

namespace hil {

void console_open() { uart_open(); }

size_t console_read(uint8_t* buffer, size_t size) {
  wait_for_byte();
  size_t count = 0;
  while (count < size && head != tail) {
    buffer[count++] = ring[tail % kRing];
    tail = tail + 1;
  }
  return count;
}

bool console_write(const uint8_t* data, size_t size) {
  last = data;
  last_size = size;
  put(data, size);
  return true;
}

// Nothing here ends a process. The fault report, and that the runner has ended, are sent again
// whenever the host ends a frame: on a lossy link the first time may not have arrived. Polls: this
// may be a fault handler, which no interrupt interrupts.
void system_exit(int status) {
  asm volatile("cpsid i" ::: "memory");
  const uint8_t code = static_cast<uint8_t>(status);
  Frame frame;
  frame.type = static_cast<uint8_t>(Event::kEnded);
  frame.payload = &code;
  frame.size = sizeof code;
  const size_t size = encode_frame(frame, ended, sizeof ended);
  for (bool again = false;; again = true) {
    if (again) put(last, last_size);
    put(ended, size);
    uint8_t byte = 1;
    while (byte != 0) uart_take(&byte);
  }
}

// There are no files and no command line behind a UART, so one-shot mode is never asked for.
int file_open(const char*, FileMode) { return kNoFile; }
size_t file_read(int, uint8_t*, size_t) { return 0; }
bool file_write(int, const uint8_t*, size_t) { return false; }
void file_close(int) {}
void print(const char*) {}
int command_arguments(const char**, int) { return 0; }

}  // namespace hil
