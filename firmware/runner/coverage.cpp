#include "runner/coverage.h"

#if HIL_COUNT_KERNELS
#include <cstring>

#include "runner/executor.h"

extern "C" {
#include <gcov.h>

// A pointer for each object file compiled with -fprofile-info-section=hil_counted.
extern const gcov_info* const __start_hil_counted[];
extern const gcov_info* const __stop_hil_counted[];
}
#endif

#include "runner/pools.h"

namespace hil {

namespace {

size_t taken = 0;  // bytes of the program pool

#if HIL_COUNT_KERNELS

// The part of the written counts that is of one object file.
struct Part {
  Writer& writer;
  size_t begin = 0;  // of its .gcda file
};

void put_name(const char* path, void* part) {
  Part& to = *static_cast<Part*>(part);
  const char* slash = std::strrchr(path, '/');
  to.writer.str(slash == nullptr ? path : slash + 1);
  to.writer.u32(0);  // the size, which is filled in at the end
  to.begin = to.writer.size();
}

void put_bytes(const void* data, unsigned size, void* part) {
  static_cast<Part*>(part)->writer.bytes(static_cast<const uint8_t*>(data), size);
}

// Only counters that are for no lines and branches take memory.
void* no_memory(unsigned, void*) { return nullptr; }

bool put_all(Writer& writer, uint8_t* pool) {
  for (const gcov_info* const* object = __start_hil_counted; object != __stop_hil_counted;
       ++object) {
    Part part{writer};
    __gcov_info_to_gcda(*object, put_name, put_bytes, no_memory, &part);
    if (!writer.ok()) return false;
    Writer size(pool + part.begin - sizeof(uint32_t), sizeof(uint32_t));
    size.u32(static_cast<uint32_t>(writer.size() - part.begin));
  }
  return true;
}

#endif

}  // namespace

#if HIL_COUNT_KERNELS

bool take_coverage(Reply& reply) {
  unload_program();
  Writer writer(program_pool().data, program_pool().size);
  const bool fits = put_all(writer, program_pool().data);
  taken = fits ? writer.size() : 0;
  if (!fits) reply.fail(Code::kBadRequest, "the program pool does not hold what the kernels count");
  return fits;
}

#else

bool take_coverage(Reply& reply) {
  reply.fail(Code::kBadRequest, "this runner counts nothing");
  return false;
}

#endif

Span<uint8_t> coverage() { return {program_pool().data, taken}; }

}  // namespace hil
