// Arm semihosting: the calls the runner uses, as they are specified.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hil::semihosting {

constexpr int kOpenReadBinary = 1;   // "rb"
constexpr int kOpenWriteBinary = 5;  // "wb"

int open(const char* path, int mode);  // negative on failure
void close(int handle);
size_t read(int handle, uint8_t* data, size_t size);  // bytes read; may be short
bool write(int handle, const uint8_t* data, size_t size);
void write0(const char* text);
bool command_line(char* buffer, size_t size);
[[noreturn]] void exit(int status);

}  // namespace hil::semihosting
