// A product's super-loop, with a test target on its UART.
#include "hil_target.h"
#include "pipeline.h"

#define REGISTER(address) (*(volatile uint32_t*)(address))
#define ALIGNED __attribute__((aligned(16)))
#define IN_PSRAM __attribute__((section(".psram"), aligned(16)))

extern uint8_t stack_bottom[], stack_top[];

// --- UART 0 of the CMSDK, Arm DDI 0479 -----------------------------------------------------------

#define UART_DATA REGISTER(0x40004000)
#define UART_STATE REGISTER(0x40004004)
#define UART_CONTROL REGISTER(0x40004008)
#define UART_DIVIDER REGISTER(0x40004010)

enum { TRANSMITTER_IS_FULL = 1, RECEIVER_IS_FULL = 2, ON = 1 | 2 };

static void open_uart(void) {
  UART_DIVIDER = 27;  // of 25 MHz: 921600 baud
  UART_CONTROL = ON;
}

static bool send(const uint8_t* bytes, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    while ((UART_STATE & TRANSMITTER_IS_FULL) != 0) {
    }
    UART_DATA = bytes[i];
  }
  return true;
}

// --- a timer of the CMSDK, at 25 MHz -------------------------------------------------------------

static void start_timer(void) { REGISTER(0x40002008) = 1u << 7 | 1u << 1; }  // on, 32 bits

#define TICKS_LEFT REGISTER(0x40002004)

static uint64_t now(void) { return ~TICKS_LEFT; }

static uint64_t since(uint64_t begin) { return (uint32_t)(now() - begin); }

// It is polled: the UART holds one byte, and the host waits until it is taken.
static int receive(uint8_t* bytes, size_t room, uint32_t milliseconds) {
  const uint32_t begin = TICKS_LEFT;
  size_t size = 0;
  do {
    while (size < room && (UART_STATE & RECEIVER_IS_FULL) != 0) bytes[size++] = (uint8_t)UART_DATA;
  } while (size == 0 &&
           (milliseconds == UINT32_MAX || begin - TICKS_LEFT < milliseconds * UINT64_C(25000)));
  return (int)size;
}

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
    .tick_hz = 25000000,
    .program = {program, sizeof program},
    .method = {method, sizeof method},
    .banks = banks,
    .bank_count = 1,
};

int main(void) {
  open_uart();
  start_timer();
  target.stack.data = stack_bottom;
  target.stack.size = (size_t)(stack_top - stack_bottom);
  if (hil_target_start(&target) != NULL) return 1;
  for (;;) {
    hil_target_poll();
    product();
  }
}
