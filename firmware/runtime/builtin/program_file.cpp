#include "runtime/builtin/program_file.h"

#include "runtime/failure.h"

namespace hil::builtin {
namespace {

constexpr size_t kAlignment = 16;
constexpr size_t kSmallestFile = 8;  // root offset and identifier
constexpr size_t kHeaderOffset = 8;
constexpr uint32_t kHeaderLength = 24;
constexpr uint32_t kHeaderLengthWithDataSize = 32;
constexpr uint32_t kMaxDepth = 16;      // the schema nests seven deep
constexpr uint32_t kSmallestTable = 4;  // its vtable offset; vtables may be shared

struct Layout {
  uint64_t program_size = 0;
  uint64_t segment_base = 0;  // 0: no segments
};

template <typename T>
T read(const uint8_t* bytes) {
  T result;
  std::memcpy(&result, bytes, sizeof(T));
  return result;
}

bool within(uint64_t offset, uint64_t size, uint64_t limit) {
  return offset <= limit && size <= limit - offset;
}

// The extended header is "eh00", its own length, the program's size, where segments begin and, in
// files of ExecuTorch 1.0 and later, how long they are together. Programs without segments may lack
// it, and are then FlatBuffers to the last byte.
bool read_header(Span<const uint8_t> bytes, Layout* layout, Failure* failure) {
  const uint8_t* header = bytes.data + kHeaderOffset;
  const size_t room = bytes.size - kHeaderOffset;
  if (room < 4 || std::memcmp(header, "eh00", 4) != 0) {
    layout->program_size = bytes.size;
    return true;
  }
  if (room < kHeaderLength) {
    return reject(failure, "truncated: the extended header needs ", kHeaderOffset + kHeaderLength,
                  " bytes, ", bytes.size, " arrived");
  }
  const uint32_t length = read<uint32_t>(header + 4);
  if (length < kHeaderLength) {
    return reject(failure, "the extended header is ", length, " bytes long, at least ",
                  kHeaderLength, " needed: the file is corrupt");
  }
  layout->program_size = read<uint64_t>(header + 8);
  layout->segment_base = read<uint64_t>(header + 16);

  uint64_t expected = layout->program_size;
  if (length >= kHeaderLengthWithDataSize && room >= kHeaderLengthWithDataSize) {
    const uint64_t data_size = read<uint64_t>(header + 24);
    if (data_size > UINT64_MAX - layout->segment_base) {
      return reject(failure, "the extended header's sizes overflow: the file is corrupt");
    }
    const uint64_t end = layout->segment_base + data_size;
    if (end > expected) expected = end;
  }
  if (expected > bytes.size) {
    return reject(failure, "truncated: header says ", expected, " bytes, ", bytes.size, " arrived");
  }
  return true;
}

bool verify_structure(Span<const uint8_t> bytes, const Layout& layout, Failure* failure) {
  if (layout.program_size < kSmallestFile || layout.program_size >= FLATBUFFERS_MAX_BUFFER_SIZE) {
    return reject(failure, "a program of ", layout.program_size, " bytes: the file is corrupt");
  }
  const size_t size = static_cast<size_t>(layout.program_size);
  flatbuffers::Verifier::Options options;
  options.max_depth = kMaxDepth;
  // Offsets may lead to one table many times over; without a bound a small file could take hours.
  options.max_tables = static_cast<uint32_t>(size / kSmallestTable);
  flatbuffers::Verifier verifier(bytes.data, size, options);
  if (!schema::VerifyProgramBuffer(verifier)) {
    return reject(failure, "the FlatBuffers structure does not verify (", size,
                  " bytes): the file is truncated or corrupt");
  }
  return true;
}

bool refuse_unsupported(const schema::Program& program, Failure* failure) {
  if (count_of(program.named_data()) != 0) {
    return reject(failure, "the program has named data (", count_of(program.named_data()),
                  " entries, the first \"", text_of(program.named_data()->Get(0)->key()),
                  "\"), which this runner does not load");
  }
  if (count_of(program.mutable_data_segments()) > 1) {
    return reject(failure, "the program has ", count_of(program.mutable_data_segments()),
                  " segments of mutable data, one is supported");
  }
  return true;
}

// The bytes of the segment that `parts` cuts up.
bool find_segment(Span<const uint8_t> bytes, const Layout& layout, const ProgramFile& file,
                  const schema::SubsegmentOffsets& parts, Span<const uint8_t>* found,
                  Failure* failure) {
  const uint32_t number = parts.segment_index();
  if (number >= count_of(file.program->segments())) {
    return reject(failure, "data of tensors are in segment ", number, " of ",
                  count_of(file.program->segments()));
  }
  if (layout.segment_base == 0) {
    return reject(failure, "the program has segments but no extended header to find them by");
  }
  const schema::DataSegment* segment = file.program->segments()->Get(number);
  if (!within(layout.segment_base, segment->offset(), bytes.size) ||
      !within(layout.segment_base + segment->offset(), segment->size(), bytes.size)) {
    return reject(failure, "truncated: segment ", number, " is ", segment->size(), " bytes at ",
                  layout.segment_base, " + ", segment->offset(), ", the file ends at ", bytes.size);
  }
  *found = {bytes.data + layout.segment_base + segment->offset(),
            static_cast<size_t>(segment->size())};
  return true;
}

bool find_constant_segment(Span<const uint8_t> bytes, const Layout& layout, ProgramFile* file,
                           Failure* failure) {
  const schema::SubsegmentOffsets* constants = file->program->constant_segment();
  const bool only_placeholder = constants == nullptr || count_of(constants->offsets()) <= 1;
  if (only_placeholder) return true;
  if (count_of(file->program->constant_buffer()) > 1) {
    return reject(failure, "constants both inline and in a segment: the file is corrupt");
  }
  return find_segment(bytes, layout, *file, *constants, &file->constants, failure);
}

const schema::SubsegmentOffsets* states_of(const schema::Program& program) {
  const auto* segments = program.mutable_data_segments();
  return count_of(segments) == 0 ? nullptr : segments->Get(0);
}

bool find_state_segment(Span<const uint8_t> bytes, const Layout& layout, ProgramFile* file,
                        Failure* failure) {
  const schema::SubsegmentOffsets* states = states_of(*file->program);
  return states == nullptr || find_segment(bytes, layout, *file, *states, &file->states, failure);
}

// Finds part `index`: it ends where the next one begins, or at the end of the segment.
bool find_part(const char* what, const schema::SubsegmentOffsets& parts,
               Span<const uint8_t> segment, uint32_t index, Span<const uint8_t>* room,
               Failure* failure) {
  const auto* offsets = parts.offsets();
  const uint64_t offset = item_of(offsets, index);
  uint64_t end = segment.size;
  if (offset > end) {
    return reject(failure, what, " ", index, " starts at ", offset, ", its segment ends at ", end);
  }
  if (index + 1 < offsets->size()) {
    const uint64_t next = item_of(offsets, index + 1);
    if (next >= offset && next < end) end = next;
  }
  *room = {segment.data + offset, static_cast<size_t>(end - offset)};
  return true;
}

bool require_room(const char* what, uint32_t index, Span<const uint8_t> room, uint32_t nbytes,
                  Failure* failure) {
  if (nbytes <= room.size) return true;
  return reject(failure, what, " ", index, " has ", room.size, " bytes, its tensor needs ", nbytes);
}

Span<const uint8_t> find_inline(const ProgramFile& file, uint32_t index) {
  const auto* storage = file.program->constant_buffer()->Get(index)->storage();
  // A Buffer without storage is empty; any address does.
  if (storage == nullptr) return {reinterpret_cast<const uint8_t*>(file.program), 0};
  return {storage->Data(), storage->size()};
}

}  // namespace

bool open_program(Span<const uint8_t> bytes, ProgramFile* file, Failure* failure) {
  *file = {};
  if (reinterpret_cast<uintptr_t>(bytes.data) % kAlignment != 0) {
    return reject(failure, "the program was placed at an address that is not a multiple of ",
                  kAlignment, ": a bug of the runner");
  }
  if (bytes.size < kSmallestFile) {
    return reject(failure, "truncated: ", bytes.size, " bytes are not a .pte");
  }
  if (!schema::ProgramBufferHasIdentifier(bytes.data)) {
    return reject(failure, "no ET12 identifier: not a .pte");
  }
  Layout layout;
  if (!read_header(bytes, &layout, failure)) return false;
  if (!verify_structure(bytes, layout, failure)) return false;
  file->program = schema::GetProgram(bytes.data);
  return refuse_unsupported(*file->program, failure) &&
         find_constant_segment(bytes, layout, file, failure) &&
         find_state_segment(bytes, layout, file, failure);
}

const schema::ExecutionPlan* find_method(const ProgramFile& file, const char* name,
                                         Failure* failure) {
  const auto* methods = file.program->execution_plan();
  const schema::ExecutionPlan* found = nullptr;
  for (uint32_t i = 0; i < count_of(methods); ++i) {
    const schema::ExecutionPlan* method = methods->Get(i);
    if (name[0] == 0) return method;
    if (std::strcmp(text_of(method->name()), name) != 0) continue;
    if (found != nullptr) {
      reject(failure, "two methods of the program are called \"", name, "\"");
      return nullptr;
    }
    found = method;
  }
  if (found != nullptr) return found;
  reject(failure, "the program has no method \"", name, "\" among its ", count_of(methods));
  return nullptr;
}

bool find_constant(const ProgramFile& file, uint32_t index, uint32_t nbytes, uint32_t alignment,
                   const uint8_t** data, Failure* failure) {
  Span<const uint8_t> room;
  const schema::SubsegmentOffsets* segment = file.program->constant_segment();
  if (segment != nullptr && index < count_of(segment->offsets())) {
    if (!find_part("constant", *segment, file.constants, index, &room, failure)) return false;
  } else if (index < count_of(file.program->constant_buffer())) {
    room = find_inline(file, index);
  } else {
    return reject(failure, "constant ", index, " does not exist");
  }
  if (!require_room("constant", index, room, nbytes, failure)) return false;
  if (reinterpret_cast<uintptr_t>(room.data) % alignment != 0) {
    return reject(failure, "constant ", index, " is not aligned to its items of ", alignment,
                  " bytes");
  }
  *data = room.data;
  return true;
}

bool find_state(const ProgramFile& file, uint32_t index, uint32_t nbytes, const uint8_t** data,
                Failure* failure) {
  constexpr char kWhat[] = "initial value";
  const schema::SubsegmentOffsets* states = states_of(*file.program);
  if (states == nullptr || index >= count_of(states->offsets())) {
    return reject(failure, kWhat, " ", index, " does not exist");
  }
  Span<const uint8_t> room;
  if (!find_part(kWhat, *states, file.states, index, &room, failure) ||
      !require_room(kWhat, index, room, nbytes, failure)) {
    return false;
  }
  *data = room.data;
  return true;
}

}  // namespace hil::builtin
