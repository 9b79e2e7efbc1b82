// A firmware of the host with channels, for tests: doubles and sums what comes in. What is given by -D changes it.
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "hil_target.h"

#if !defined(FRAME)
#define FRAME 64
#endif
#if !defined(AFTER)
#define AFTER
#endif
#if !defined(WITHOUT)
#define WITHOUT 0
#endif

static int receive(uint8_t* bytes, size_t room, uint32_t milliseconds) {
  struct pollfd input = {STDIN_FILENO, POLLIN, 0};
  if (poll(&input, 1, milliseconds == UINT32_MAX ? -1 : (int)milliseconds) == 0) return 0;
  const ssize_t size = read(STDIN_FILENO, bytes, room);
  return size > 0 ? (int)size : -1;
}

static bool send(const uint8_t* bytes, size_t size) {
  while (size > 0) {
    const ssize_t sent = write(STDOUT_FILENO, bytes, size);
    if (sent <= 0) return false;
    bytes += sent;
    size -= (size_t)sent;
  }
  return true;
}

static void say(const char* text) { send((const uint8_t*)text, strlen(text)); }

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static uint8_t memory[3][4096] __attribute__((aligned(16)));
static const hil_bank banks[] = {{"host", {memory[0], sizeof memory[0]}}};
static const hil_target target = {
    .build_id = "channels of tests",
    .configuration = "tests",
    .firmware = "channels 1.0",
    .without = WITHOUT,
    .read = receive,
    .write = send,
    .end = _exit,
    .now = now,
    .tick_source = "CLOCK_MONOTONIC",
    .tick_hz = 1000000000,
    .program = {memory[1], sizeof memory[1]},
    .method = {memory[2], sizeof memory[2]},
    .banks = banks,
    .bank_count = 1,
};

static uint8_t samples[FRAME];
static int8_t doubled[FRAME];
static int32_t sum;

static void work(void) {
  for (size_t i = 0; i < sizeof samples; ++i) doubled[i] = (int8_t)(samples[i] * 2);
  HIL_OUTPUT(doubled, doubled, sizeof doubled);
  sum = 0;
  for (size_t i = 0; i < sizeof doubled; ++i) sum += doubled[i];
  HIL_OUTPUT(sum, &sum, sizeof sum);
}

int main(void) {
  say("boot loader 1.0\r\n");
  if (hil_target_start(&target) != NULL) return 1;
  for (uint32_t turn = 0; hil_target_poll(); ++turn) {
    for (size_t i = 0; i < sizeof samples; ++i) samples[i] = (uint8_t)(turn + i);  // the sensor
    HIL_INPUT(samples, samples, sizeof samples);
    AFTER;
    work();
  }
  return 0;
}
