#include "runner/coverage.h"

#if HIL_COUNT_KERNELS

#include <cstring>

#include "target_library/wire.h"

extern "C" {
#include <gcov.h>

// A pointer for each object file compiled with -fprofile-info-section=hil_counted.
extern const gcov_info* const __start_hil_counted[];
extern const gcov_info* const __stop_hil_counted[];
}

namespace {

// The part of the written counts that is of one object file.
struct Part {
  hil_writer& writer;
  size_t begin = 0;  // of its .gcda file
};

void put_name(const char* path, void* part) {
  Part& to = *static_cast<Part*>(part);
  const char* slash = std::strrchr(path, '/');
  hil_put_str(&to.writer, slash == nullptr ? path : slash + 1);
  hil_put_u32(&to.writer, 0);  // the size, which is filled in at the end
  to.begin = to.writer.size;
}

void put_bytes(const void* data, unsigned size, void* part) {
  hil_put_bytes(&static_cast<Part*>(part)->writer, static_cast<const uint8_t*>(data), size);
}

// Only counters that are for no lines and branches take memory.
void* no_memory(unsigned, void*) { return nullptr; }

size_t put_all(uint8_t* room, size_t size) {
  hil_writer writer = hil_writer_of(room, size);
  for (const gcov_info* const* object = __start_hil_counted; object != __stop_hil_counted;
       ++object) {
    Part part{writer};
    __gcov_info_to_gcda(*object, put_name, put_bytes, no_memory, &part);
    if (!writer.ok) return 0;
    hil_writer field = hil_writer_of(room + part.begin - sizeof(uint32_t), sizeof(uint32_t));
    hil_put_u32(&field, static_cast<uint32_t>(writer.size - part.begin));
  }
  return writer.size;
}

}  // namespace

size_t (*hil::coverage())(uint8_t* room, size_t size) { return put_all; }

#else

size_t (*hil::coverage())(uint8_t* room, size_t size) { return nullptr; }

#endif
