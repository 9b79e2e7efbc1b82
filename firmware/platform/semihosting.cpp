#include "platform/semihosting.h"

#include <cstring>

namespace {

enum Operation : uint32_t {
  kSysOpen = 0x01,
  kSysClose = 0x02,
  kSysWrite0 = 0x04,
  kSysWrite = 0x05,
  kSysRead = 0x06,
  kSysGetCmdline = 0x15,
  kSysExit = 0x18,
  kSysExitExtended = 0x20,
};

constexpr uint32_t kApplicationExit = 0x20026;
constexpr uint32_t kRunTimeErrorUnknown = 0x20023;

uint32_t call(Operation operation, uint32_t parameter) {
  register uint32_t r0 asm("r0") = operation;
  register uint32_t r1 asm("r1") = parameter;
  asm volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}

uint32_t call(Operation operation, const uint32_t* block) {
  return call(operation, static_cast<uint32_t>(reinterpret_cast<uintptr_t>(block)));
}

uint32_t word(const void* pointer) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(pointer));
}

}  // namespace

namespace hil::semihosting {

int open(const char* path, int mode) {
  const uint32_t block[] = {word(path), static_cast<uint32_t>(mode), std::strlen(path)};
  return static_cast<int>(call(kSysOpen, block));
}

void close(int handle) {
  const uint32_t block[] = {static_cast<uint32_t>(handle)};
  call(kSysClose, block);
}

size_t read(int handle, uint8_t* data, size_t size) {
  const uint32_t block[] = {static_cast<uint32_t>(handle), word(data), size};
  const uint32_t missing = call(kSysRead, block);
  return missing <= size ? size - missing : 0;
}

bool write(int handle, const uint8_t* data, size_t size) {
  while (size > 0) {
    const uint32_t block[] = {static_cast<uint32_t>(handle), word(data), size};
    const uint32_t missing = call(kSysWrite, block);
    if (missing >= size) return false;
    data += size - missing;
    size = missing;
  }
  return true;
}

void write0(const char* text) { call(kSysWrite0, word(text)); }

bool command_line(char* buffer, size_t size) {
  uint32_t block[] = {word(buffer), size};
  return call(kSysGetCmdline, block) == 0;
}

void exit(int status) {
  const uint32_t block[] = {kApplicationExit, static_cast<uint32_t>(status)};
  call(kSysExitExtended, block);
  // A host without SYS_EXIT_EXTENDED returns; SYS_EXIT tells success from failure only.
  for (;;) call(kSysExit, status == 0 ? kApplicationExit : kRunTimeErrorUnknown);
}

}  // namespace hil::semihosting
