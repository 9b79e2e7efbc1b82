// The functions that the C and C++ libraries call on fatal errors.
#include <cstddef>
#include <cstdlib>

#include "platform/console.h"
#include "platform/fault.h"

namespace {

[[noreturn]] void fatal(const char* what) {
  hil::report_fatal(what);
  hil::system_exit(hil::kExitFatal);
}

}  // namespace

extern "C" {

[[noreturn]] void abort() { fatal("abort"); }

[[noreturn]] void __assert_func(const char*, int, const char*, const char* expression) {
  fatal(expression);
}

[[noreturn]] void __cxa_pure_virtual() { fatal("pure virtual call"); }

[[noreturn]] void _exit(int) { fatal("exit"); }

// Nothing is ever destroyed: the runner ends by system_exit().
int __cxa_atexit(void (*)(void*), void*, void*) { return 0; }
int __aeabi_atexit(void*, void (*)(void*), void*) { return 0; }
void* __dso_handle = nullptr;
}

// Compilers emit calls to it from virtual destructors.
void operator delete(void*) noexcept { fatal("operator delete"); }
void operator delete(void*, std::size_t) noexcept { fatal("operator delete"); }
