// A plugin of QEMU that counts the instructions that the guest executes, and writes their number
// into a file as QEMU exits: -plugin qemu_instructions.so,out=FILE. It declares what it uses of the
// plugin API itself, as distributions do not package the header.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

extern "C" {

struct block;        // QEMU's qemu_plugin_tb
struct instruction;  // QEMU's qemu_plugin_insn
using Id = uint64_t;

__attribute__((visibility("default"))) int qemu_plugin_version = HIL_PLUGIN_VERSION;

void qemu_plugin_register_vcpu_tb_trans_cb(Id id, void (*translated)(Id, block*));
size_t qemu_plugin_tb_n_insns(const block* translated);
instruction* qemu_plugin_tb_get_insn(const block* translated, size_t number);
void qemu_plugin_register_vcpu_insn_exec_cb(instruction* one, void (*executed)(unsigned, void*),
                                            int flags, void* data);
void qemu_plugin_register_atexit_cb(Id id, void (*ending)(Id, void*), void* data);
}

namespace {

constexpr int kNoRegisters = 0;  // QEMU_PLUGIN_CB_NO_REGS
uint64_t count = 0;
FILE* out = nullptr;

void executed(unsigned, void*) { ++count; }

void translated(Id, block* one) {
  const size_t size = qemu_plugin_tb_n_insns(one);
  for (size_t i = 0; i < size; ++i) {
    qemu_plugin_register_vcpu_insn_exec_cb(qemu_plugin_tb_get_insn(one, i), executed, kNoRegisters,
                                           nullptr);
  }
}

void ending(Id, void*) {
  std::fprintf(out, "%llu\n", static_cast<unsigned long long>(count));
  std::fclose(out);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int qemu_plugin_install(Id id, const void*,
                                                                          int argc, char** argv) {
  const char* path = argc == 1 ? std::strchr(argv[0], '=') : nullptr;
  out = path != nullptr ? std::fopen(path + 1, "w")
                        : nullptr;  // now, as the guest's threads may open less
  if (out == nullptr) return 1;
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  qemu_plugin_register_atexit_cb(id, ending, nullptr);
  return 0;
}
