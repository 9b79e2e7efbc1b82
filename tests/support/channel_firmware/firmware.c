// A firmware of the host with channels, for tests: doubles and sums what comes in. A frame of nothing but one of the
// numbers below makes it do something else; the environment, what it is.
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "hil_target.h"

static uint32_t received;  // bytes since the start

static uint32_t bytes_received(void) { return __atomic_load_n(&received, __ATOMIC_RELAXED); }

static int receive(uint8_t* bytes, size_t room, uint32_t milliseconds) {
  struct pollfd input = {STDIN_FILENO, POLLIN, 0};
  if (poll(&input, 1, milliseconds == UINT32_MAX ? -1 : (int)milliseconds) == 0) return 0;
  const ssize_t size = read(STDIN_FILENO, bytes, room);
  if (size > 0) __atomic_add_fetch(&received, (uint32_t)size, __ATOMIC_RELAXED);
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
static hil_target target = {
    .build_id = "channels of tests",
    .configuration = "tests",
    .firmware = "channels 1.0",
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

static uint8_t samples[64];
static int8_t doubled[64];
static int32_t sum;

static void work(void) {
  for (size_t i = 0; i < sizeof samples; ++i) doubled[i] = (int8_t)(samples[i] * 2);
  HIL_OUTPUT(doubled, doubled, sizeof doubled);
  sum = 0;
  for (size_t i = 0; i < sizeof doubled; ++i) sum += doubled[i];
  HIL_OUTPUT(sum, &sum, sizeof sum);
}

enum { SAY = 7, FLOOD = 8, RESET = 9, HANG = 10, FAULT = 11, STREAM = 12 };

// Fills half of each output, and goes on as soon as the host has sent something.
static void stream(void) {
  const uint32_t before = bytes_received();
  work();
  work();
  for (int waits = 0; waits < 2000 && bytes_received() == before; ++waits) usleep(1000);
}

static void misbehave(uint8_t how) {
  for (size_t i = 1; i < sizeof samples; ++i) {
    if (samples[i] != how) return;
  }
  if (how == SAY) say("took a frame\n");
  for (int i = 0; how == FLOOD && i < 9; ++i) work();
  if (how == STREAM) stream();
  if (how == RESET) hil_target_start(&target);
  while (how == HANG) {
  }
  if (how == FAULT) hil_target_fatal("the feature stage has no window");
}

static void sleep_a_while(void) { usleep(100); }

// A boot that takes longer than the host is quiet for; DEAF ones lose what is sent to them meanwhile.
static void boot(const char* how) {
  uint8_t lost[256];
  usleep(1200000);
  if (strcmp(how, "deaf") == 0) receive(lost, sizeof lost, UINT32_MAX);
}

static void* serve(void* nothing) {
  hil_target_serve();
  exit(0);
  return nothing;
}

int main(void) {
  static uint8_t gain[1];
  pthread_t task;
  say("boot loader 1.0\r\n");
  const char* without = getenv("CHANNELS_WITHOUT");
  target.without = without != NULL ? (uint32_t)atoi(without) : 0;
  const bool has_task = getenv("CHANNELS_TASK") != NULL;
  if (has_task) target.yield = sleep_a_while;
  if (getenv("CHANNELS_BOOT") != NULL) boot(getenv("CHANNELS_BOOT"));
  if (hil_target_start(&target) != NULL) return 1;
  if (has_task && pthread_create(&task, NULL, serve, NULL) != 0) return 1;
  for (uint32_t turn = 0; has_task || hil_target_poll(); ++turn) {
    for (size_t i = 0; i < sizeof samples; ++i) samples[i] = (uint8_t)(turn + i);  // the sensor
    HIL_INPUT(samples, samples, sizeof samples);
    const uint32_t before = bytes_received();
    misbehave(samples[0]);
    HIL_INPUT(gain, gain, sizeof gain);
    HIL_OUTPUT(seen, gain, sizeof gain);
    work();
    if (has_task) {
      static uint32_t heard[1];
      usleep(3000);
      heard[0] = bytes_received() - before;
      HIL_OUTPUT(heard, heard, sizeof heard);
    }
    if (getenv("CHANNELS_TWICE") != NULL) HIL_OUTPUT(sum, &sum, sizeof sum);
  }
  return 0;
}
