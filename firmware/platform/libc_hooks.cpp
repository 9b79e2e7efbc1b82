// The functions that the C and C++ libraries call on fatal errors.
#include <cstddef>
#include <cstdlib>

#include "target_library/hil_target.h"

extern "C" {

[[noreturn]] void abort() { hil_target_fatal("abort"); }

[[noreturn]] void __assert_func(const char*, int, const char*, const char* expression) {
  hil_target_fatal(expression);
}

[[noreturn]] void __cxa_pure_virtual() { hil_target_fatal("pure virtual call"); }

[[noreturn]] void _exit(int) { hil_target_fatal("exit"); }

// Nothing is ever destroyed: the runner ends by hil::system_exit().
int __cxa_atexit(void (*)(void*), void*, void*) { return 0; }
int __aeabi_atexit(void*, void (*)(void*), void*) { return 0; }
void* __dso_handle = nullptr;
}

// Compilers emit calls to it from virtual destructors.
void operator delete(void*) noexcept { hil_target_fatal("operator delete"); }
void operator delete(void*, std::size_t) noexcept { hil_target_fatal("operator delete"); }
