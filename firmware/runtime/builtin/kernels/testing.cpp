// Operators that misbehave, so that the harness can be tested against what it is there to catch;
// and one that compares the two forms of each inner loop.
#include <cstring>

#include "runtime/builtin/kernel.h"
#include "runtime/builtin/kernels/dot.h"

#if !defined(__arm__)
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#endif

namespace hil::builtin {
namespace {

// Out of the optimiser's sight.
volatile uint32_t sink;

#if defined(__arm__)

void read_unmapped() {
  // In the vendor's part of the system region, where no board has anything (an nRF51 has at its
  // end).
  sink = *reinterpret_cast<volatile uint32_t*>(uintptr_t{0xE8000000u});
}

void undefined_instruction() { __asm volatile("udf #0"); }

// Not even cores that forgive an unaligned LDR forgive an unaligned LDM.
void unaligned_access() {
  alignas(8) static uint8_t bytes[16];
  const uint8_t* address = bytes + 1;
  uint32_t first;
  uint32_t second;
  __asm volatile("ldmia %[address]!, {%[first], %[second]}"
                 : [address] "+l"(address), [first] "=&l"(first), [second] "=&l"(second)
                 :
                 : "memory");
  sink = first + second;
}

void wait_for_interrupt() { __asm volatile("wfi"); }

// Semihosting's SYS_EXIT_EXTENDED with ADP_Stopped_ApplicationExit.
[[noreturn]] void leave(int32_t status) {
  const uint32_t block[2] = {0x20026, static_cast<uint32_t>(status)};
  register uint32_t operation __asm("r0") = 0x20;
  register const uint32_t* argument __asm("r1") = block;
  __asm volatile("bkpt 0xAB" : "+r"(operation) : "r"(argument) : "memory");
  for (;;) {
  }
}

#else

void read_unmapped() { std::raise(SIGSEGV); }
void undefined_instruction() { std::raise(SIGILL); }
void unaligned_access() { std::raise(SIGBUS); }
void wait_for_interrupt() { pause(); }
[[noreturn]] void leave(int32_t status) { _exit(status); }

#endif

// Compilers refuse a recursion without an end; this one has it far below any stack.
uint32_t recurse(uint32_t levels) {
  volatile uint32_t frame[16] = {levels};
  return levels == 0 ? 0 : recurse(levels - 1) + frame[levels % 16];
}

void overflow_stack() { sink = recurse(UINT32_MAX); }

void (*const kFaults[])() = {
    read_unmapped,
    undefined_instruction,
    overflow_stack,
    unaligned_access,
};
constexpr int32_t kFaultCount = sizeof(kFaults) / sizeof(kFaults[0]);

}  // namespace

// hil_test::fault.out(Tensor x, int kind, *, Tensor(a!) out): `kind` indexes kFaults
void test_fault(KernelContext& ctx) {
  ctx.tensor("x");
  const int32_t kind = ctx.integer("kind", 0, kFaultCount - 1);
  ctx.out();
  if (!ctx.done()) return;
  kFaults[kind]();
  ctx.fail("fault ", kind, " did not stop this target");
}

// hil_test::hang.out(Tensor x, int kind, *, Tensor(a!) out): 0 busy, 1 asleep
void test_hang(KernelContext& ctx) {
  ctx.tensor("x");
  const int32_t kind = ctx.integer("kind", 0, 1);
  ctx.out();
  if (!ctx.done()) return;
  for (;;) {
    if (kind == 0) {
      sink = sink + 1;
    } else {
      wait_for_interrupt();
    }
  }
}

// hil_test::exit.out(Tensor x, int status, *, Tensor(a!) out): out of the runner's control
void test_exit(KernelContext& ctx) {
  ctx.tensor("x");
  const int32_t status = ctx.integer("status", 0, UINT8_MAX);
  ctx.out();
  if (ctx.done()) leave(status);
}

// hil_test::dots.out(Tensor a, Tensor b, int a_offset, int b_offset, *, Tensor(a!) out)
//
// For every range of a and b, of any length and alignment: out[0] counts them; out[1..3] those
// where this ISA's dot, sum_of and dot_with_offsets differ from their scalar forms; out[4..6] are
// the sums of the scalar forms over all ranges, for the host to check.
void test_dots(KernelContext& ctx) {
  const Tensor& a = ctx.tensor("a", DType::kInt8);
  const Tensor& b = ctx.tensor("b", DType::kInt8);
  const int32_t a_offset = ctx.integer("a_offset", -256, 256);
  const int32_t b_offset = ctx.integer("b_offset", -256, 256);
  const Tensor& out = ctx.out(DType::kInt32);
  if (!ctx.done()) return;
  const uint32_t length = a.numel;
  if (!ctx.require(b.numel == length, "a has ", length, " elements, b ", b.numel)) return;
  if (!ctx.require(out.numel == 7, "out has ", out.numel, " elements, 7 needed")) return;
  int32_t results[7] = {};
  for (uint32_t start = 0; start <= length; ++start) {
    const int8_t* x = a.as<int8_t>() + start;
    const int8_t* y = b.as<int8_t>() + start;
    for (uint32_t count = 0; count <= length - start; ++count) {
      const int32_t seed = static_cast<int32_t>(start * 0x01000193u + count);
      const int32_t plain[3] = {scalar::dot(x, y, count, seed), scalar::sum_of(x, count),
                                scalar::dot_with_offsets(x, a_offset, y, b_offset, count, seed)};
      const int32_t vector[3] = {dot(x, y, count, seed), sum_of(x, count),
                                 dot_with_offsets(x, a_offset, y, b_offset, count, seed)};
      ++results[0];
      for (int form = 0; form < 3; ++form) {
        results[1 + form] += plain[form] != vector[form];
        results[4 + form] = wrapping_add(results[4 + form], plain[form]);
      }
    }
  }
  for (int i = 0; i < 7; ++i) out.as<int32_t>()[i] = results[i];
}

// hil_test::stray.out(Tensor x, int at, int byte, *, Tensor(a!) out): copies x, and writes a byte
// `at` bytes from the start of out
void test_stray(KernelContext& ctx) {
  const Tensor& x = ctx.tensor("x");
  const int32_t at = ctx.integer("at", -256, 4096);
  const int32_t byte = ctx.integer("byte", 0, UINT8_MAX);
  const Tensor& out = ctx.out();
  if (!ctx.done() || !ctx.require(x.nbytes == out.nbytes, "x is ", x, ", out is ", out)) return;
  std::memmove(out.data, x.data, out.nbytes);
  out.data[at] = static_cast<uint8_t>(byte);
}

// hil_test::peek.out(Tensor x, int at, *, Tensor(a!) out): x, its first byte that of another place
void test_peek(KernelContext& ctx) {
  const Tensor& x = ctx.tensor("x");
  const int32_t at = ctx.integer("at", -65536, 65536);
  const Tensor& out = ctx.out();
  if (!ctx.done() || !ctx.require(x.nbytes == out.nbytes, "x is ", x, ", out is ", out)) return;
  std::memmove(out.data, x.data, out.nbytes);
  out.data[0] = x.data[at];
}

// hil_test::overcopy.out(Tensor x, int extra, *, Tensor(a!) out): copies that many bytes too
// many, or too few
void test_overcopy(KernelContext& ctx) {
  const Tensor& x = ctx.tensor("x");
  const int32_t extra = ctx.integer("extra", -256, 256);
  const Tensor& out = ctx.out();
  if (!ctx.done() || !ctx.require(x.nbytes == out.nbytes, "x is ", x, ", out is ", out)) return;
  const int64_t size = static_cast<int64_t>(out.nbytes) + extra;
  if (!ctx.require(size >= 0, "out is ", out)) return;
  std::memmove(out.data, x.data, static_cast<size_t>(size));
}

}  // namespace hil::builtin
