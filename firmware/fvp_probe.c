/* What `hil doctor --verify-fvp` runs on a model: one behaviour a build, chosen by PROBE. Needs
 * nothing but a board's memory, and knows semihosting by itself, so that a fault of the runner
 * cannot hide behind it. */
#include "memory.h"

typedef unsigned int u32;

enum { kExit, kSpin, kFault, kEcho, kCommandLine, kMemory };
enum { kOpen = 0x01, kWrite = 0x05, kRead = 0x06, kGetCommandLine = 0x15, kExitExtended = 0x20 };

extern u32 __stack_top[];
void Reset_Handler(void);
void Fault_Handler(void);

__attribute__((section(".vectors"), used)) const void* const vectors[16] = {
    __stack_top,          (void*)Reset_Handler, (void*)Fault_Handler, (void*)Fault_Handler,
    (void*)Fault_Handler, (void*)Fault_Handler, (void*)Fault_Handler};

__attribute__((section(".noinit.program_pool"))) u32 program_pool[HIL_PROGRAM_POOL / 4];
__attribute__((section(".noinit.bank_" HIL_FIRST_BANK_NAME))) u32 first_bank[HIL_FIRST_BANK / 4];
__attribute__((section(".noinit.method_pool"))) u32 method_pool[HIL_METHOD_POOL / 4];

/* GCC calls it to fill a block on the stack, and there is no C library. */
void* memcpy(void* to, const void* from, u32 size) {
  for (u32 i = 0; i < size; ++i) ((char*)to)[i] = ((const char*)from)[i];
  return to;
}

static u32 call(u32 operation, const volatile void* block) {
  register u32 r0 __asm("r0") = operation;
  register u32 r1 __asm("r1") = (u32)block;
  __asm volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}

static u32 console(u32 mode) {
  volatile u32 block[] = {(u32) ":tt", mode, 3};
  return call(kOpen, block);
}

static void leave(u32 status) {
  volatile u32 block[] = {0x20026, status};
  call(kExitExtended, block);
  for (;;) {
  }
}

static void write_all(u32 file, const char* data, u32 size) {
  while (size > 0) {
    volatile u32 block[] = {file, (u32)data, size};
    const u32 missing = call(kWrite, block);
    if (missing >= size) leave(2);
    data += size - missing;
    size = missing;
  }
}

static void echo(void) {
  char buffer[4096];
  const u32 in = console(1);
  const u32 out = console(5);
  for (;;) {
    volatile u32 block[] = {in, (u32)buffer, sizeof buffer};
    const u32 missing = call(kRead, block);
    if (missing >= sizeof buffer) leave(0);
    write_all(out, buffer, sizeof buffer - missing);
  }
}

static void command_line(void) {
  char buffer[1024];
  volatile u32 block[] = {(u32)buffer, sizeof buffer};
  if (call(kGetCommandLine, block) != 0) leave(1);
  write_all(console(5), buffer, block[1]);
  leave(0);
}

/* Each word its own address: a pool that is short, or that lies over another, does not read back.
 */
static void put(volatile u32* pool, u32 words) {
  for (u32 i = 0; i < words; ++i) pool[i] = (u32)&pool[i];
}

static u32 intact(volatile u32* pool, u32 words) {
  for (u32 i = 0; i < words; ++i) {
    if (pool[i] != (u32)&pool[i]) return 0;
  }
  return 1;
}

static void memory(void) {
  put(program_pool, HIL_PROGRAM_POOL / 4);
  put(first_bank, HIL_FIRST_BANK / 4);
  put(method_pool, HIL_METHOD_POOL / 4);
  if (!intact(program_pool, HIL_PROGRAM_POOL / 4)) leave(11);
  if (!intact(first_bank, HIL_FIRST_BANK / 4)) leave(12);
  if (!intact(method_pool, HIL_METHOD_POOL / 4)) leave(13);
  leave(10);
}

/* A fault in here is a lockup. */
void Fault_Handler(void) { __asm volatile("udf #1"); }

void Reset_Handler(void) {
  if (PROBE == kExit) leave(42);
  if (PROBE == kFault) __asm volatile("udf #0");
  if (PROBE == kEcho) echo();
  if (PROBE == kCommandLine) command_line();
  if (PROBE == kMemory) memory();
  for (;;) {
  }
}
