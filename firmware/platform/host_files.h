// The host's files, standard output and command line, for one-shot mode.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hil {

enum class FileMode { kRead, kWrite };

constexpr int kNoFile = -1;

int file_open(const char* path, FileMode mode);          // kNoFile on failure
size_t file_read(int file, uint8_t* data, size_t size);  // less than `size` at the end of the file
bool file_write(int file, const uint8_t* data, size_t size);
void file_close(int file);

void print(const char* text);

#if defined(__arm__)
// Splits the command line at spaces into at most `capacity` words; returns their number.
int command_arguments(const char** argv, int capacity);
#endif

}  // namespace hil
