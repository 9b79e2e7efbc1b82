// The host build: standard input and output are the console.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "platform/console.h"
#include "platform/host_files.h"

namespace {

size_t read_some(int fd, uint8_t* data, size_t size) {
  ssize_t n;
  do {
    n = ::read(fd, data, size);
  } while (n < 0 && errno == EINTR);
  return n > 0 ? static_cast<size_t>(n) : 0;
}

bool write_all(int fd, const uint8_t* data, size_t size) {
  while (size > 0) {
    const ssize_t n = ::write(fd, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    data += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

namespace hil {

void link_console(hil_target* target) {
  target->read = [](uint8_t* bytes, size_t room, uint32_t) {
    const size_t size = read_some(STDIN_FILENO, bytes, room);
    return size > 0 ? static_cast<int>(size) : -1;
  };
  target->write = [](const uint8_t* bytes, size_t size) {
    return write_all(STDOUT_FILENO, bytes, size);
  };
  target->end = system_exit;
}

void system_exit(int status) { ::_exit(status); }

int file_open(const char* path, FileMode mode) {
  const int flags = mode == FileMode::kRead ? O_RDONLY : O_WRONLY | O_CREAT | O_TRUNC;
  return ::open(path, flags | O_CLOEXEC, 0666);
}

size_t file_read(int file, uint8_t* data, size_t size) {
  size_t done = 0;
  while (done < size) {
    const size_t n = read_some(file, data + done, size - done);
    if (n == 0) break;
    done += n;
  }
  return done;
}

bool file_write(int file, const uint8_t* data, size_t size) { return write_all(file, data, size); }

void file_close(int file) { ::close(file); }

void print(const char* text) {
  write_all(STDOUT_FILENO, reinterpret_cast<const uint8_t*>(text), std::strlen(text));
}

}  // namespace hil
