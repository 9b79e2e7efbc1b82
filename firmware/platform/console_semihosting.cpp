#include "platform/console.h"
#include "platform/host_files.h"
#include "platform/semihosting.h"

namespace {

namespace semihosting = hil::semihosting;

constexpr char kConsoleName[] = ":tt";  // the host's stdin when opened to read, stdout to write
constexpr size_t kCommandLineSize = 2048;

int console_in = hil::kNoFile;
int console_out = hil::kNoFile;
char command_line[kCommandLineSize];

// The first write is that of READY, or of why the firmware ends.
bool write(const uint8_t* bytes, size_t size) {
  if (console_out == hil::kNoFile) {
    console_in = semihosting::open(kConsoleName, semihosting::kOpenReadBinary);
    console_out = semihosting::open(kConsoleName, semihosting::kOpenWriteBinary);
  }
  return semihosting::write(console_out, bytes, size);
}

int read(uint8_t* bytes, size_t room, uint32_t) {
  const size_t size = semihosting::read(console_in, bytes, room);
  return size > 0 ? static_cast<int>(size) : -1;
}

int split(char* text, const char** words, int capacity) {
  int count = 0;
  while (count < capacity) {
    while (*text == ' ') *text++ = '\0';
    if (*text == '\0') break;
    words[count++] = text;
    while (*text != '\0' && *text != ' ') ++text;
  }
  return count;
}

}  // namespace

namespace hil {

void link_console(hil_target* target) {
  target->read = read;
  target->write = write;
  target->end = system_exit;
}

void system_exit(int status) { semihosting::exit(status); }

int file_open(const char* path, FileMode mode) {
  return semihosting::open(
      path, mode == FileMode::kRead ? semihosting::kOpenReadBinary : semihosting::kOpenWriteBinary);
}

size_t file_read(int file, uint8_t* data, size_t size) {
  size_t done = 0;
  while (done < size) {
    const size_t n = semihosting::read(file, data + done, size - done);
    if (n == 0) break;
    done += n;
  }
  return done;
}

bool file_write(int file, const uint8_t* data, size_t size) {
  return semihosting::write(file, data, size);
}

void file_close(int file) { semihosting::close(file); }

void print(const char* text) { semihosting::write0(text); }

int command_arguments(const char** argv, int capacity) {
  if (!semihosting::command_line(command_line, sizeof command_line - 1)) return 0;
  return split(command_line, argv, capacity);
}

}  // namespace hil
