// The system calls that newlib wants for the text of ExecuTorch's log lines. The runner's own code
// has no heap; vsnprintf() takes memory for the digits of a floating-point number, and gets it here
// or nowhere. It gives back what it took, so the bytes serve one line after the other. operator new
// stays undefined: a kernel that wants a heap does not link.
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "platform/console.h"

namespace {

constexpr size_t kHeap = 4096;

alignas(8) uint8_t heap[kHeap];
size_t used = 0;

}  // namespace

extern "C" {

void* _sbrk(ptrdiff_t size) {
  const auto more = static_cast<size_t>(size);
  if (size < 0 || more > kHeap - used) {
    errno = ENOMEM;
    return reinterpret_cast<void*>(-1);
  }
  used += more;
  return heap + used - more;
}

// vsnprintf() writes to no file, but newlib's tables of standard streams refer to these.
int _close(int) { return -1; }
int _fstat(int, void*) { return -1; }
int _getpid() { return 1; }
int _isatty(int) { return 0; }
int _kill(int, int) { hil::system_exit(hil::kExitFatal); }
int _lseek(int, int, int) { return -1; }
int _read(int, void*, int) { return -1; }
int _write(int, const void*, int) { return -1; }
}
