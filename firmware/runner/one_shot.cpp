#include "runner/one_shot.h"

#include <cstring>

#include "platform/host_files.h"
#include "runner/plain_text.h"
#include "runner/text_line.h"
#include "target_library/link.h"
#include "target_library/program.h"

namespace hil {

namespace {

constexpr uint32_t kMaxInputs = 16;

struct Options {
  const char* program = nullptr;
  const char* output = nullptr;
  const char* method = "";  // the first, as of ExecuTorch's runners
  const char* inputs[kMaxInputs] = {};
  uint32_t input_count = 0;
};

bool complain(const TextLine& line) {
  print(line.c_str());
  return false;
}

bool usage() {
  return complain(TextLine() << "usage: executor_runner -m program.pte [--method_name name] -o out "
                                "[-i input.bin]...\n");
}

bool take_option(Options* options, const char* flag, const char* value) {
  if (std::strcmp(flag, "-m") == 0) {
    options->program = value;
  } else if (std::strcmp(flag, "-o") == 0) {
    options->output = value;
  } else if (std::strcmp(flag, "--method_name") == 0) {
    options->method = value;
  } else if (std::strcmp(flag, "-i") == 0 && options->input_count < kMaxInputs) {
    options->inputs[options->input_count++] = value;
  } else {
    return complain(TextLine() << "unknown option or too many inputs: " << flag << "\n");
  }
  return true;
}

bool parse(int argc, const char* const* argv, Options* options) {
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc) return usage();
    if (!take_option(options, argv[i], argv[i + 1])) return usage();
  }
  return (options->program != nullptr && options->output != nullptr) || usage();
}

// Reads a whole file; *size is its size. A file larger than `room` is refused.
bool read_file(const char* path, hil_memory room, size_t* size) {
  const int file = file_open(path, FileMode::kRead);
  if (file < 0) return complain(TextLine() << "cannot open " << path << "\n");
  uint8_t beyond;
  *size = file_read(file, room.data, room.size);
  const bool fits = *size < room.size || file_read(file, &beyond, 1) == 0;
  file_close(file);
  if (fits) return true;
  return complain(TextLine() << path << " is larger than " << static_cast<uint32_t>(room.size)
                             << " bytes\n");
}

bool write_file(const char* path, hil_memory bytes) {
  const int file = file_open(path, FileMode::kWrite);
  if (file < 0) return complain(TextLine() << "cannot create " << path << "\n");
  const bool good = file_write(file, bytes.data, bytes.size);
  file_close(file);
  return good || complain(TextLine() << "cannot write " << path << "\n");
}

bool print_failure() {
  const hil_failure& failure = *hil_runtime_failure();
  TextLine line;
  line << "failed with status " << static_cast<uint32_t>(failure.code);
  if (failure.instruction >= 0) {
    line << " at instruction " << static_cast<uint32_t>(failure.instruction);
  }
  if (failure.op[0] != '\0') line << " " << failure.op;
  if (failure.requested != 0) {
    line << ", asked for " << static_cast<uint32_t>(failure.requested) << " of "
         << static_cast<uint32_t>(failure.available) << " bytes";
  }
  return complain(line << ": " << failure.message << "\n");
}

bool load(const Options& options) {
  size_t size = 0;
  const hil_memory room = hil_target_used->program;
  if (!read_file(options.program, room, &size)) return false;
  return hil_load_program(room.data, size, options.method) || print_failure();
}

bool set_input(const char* path, uint32_t number) {
  hil_value view;
  if (!hil_runtime_input(number, &view) || !view.writable) {
    return complain(TextLine() << "input " << number << " cannot be set\n");
  }
  size_t size = 0;
  if (!read_file(path, view.data, &size)) return false;
  if (size == view.data.size) return true;
  return complain(TextLine() << path << " has " << static_cast<uint32_t>(size) << " bytes, input "
                             << number << " " << static_cast<uint32_t>(view.data.size) << "\n");
}

bool set_inputs(const Options& options) {
  const uint32_t wanted = hil_runtime_shape().inputs;
  if (options.input_count != wanted) {
    return complain(TextLine() << "the program has " << wanted << " inputs, " << options.input_count
                               << " were given\n");
  }
  for (uint32_t i = 0; i < wanted; ++i) {
    if (!set_input(options.inputs[i], i)) return false;
  }
  return true;
}

bool run() {
  hil_execution execution;
  const auto before = [](uint32_t) {};
  if (!hil_execute(HIL_TO_THE_END, before, &execution)) return print_failure();
  print((TextLine() << "executed " << hil_runtime_shape().instructions << " instructions in "
                    << static_cast<uint32_t>(execution.ticks) << " ticks\n")
            .c_str());
  return true;
}

bool write_output(const char* prefix, uint32_t number) {
  hil_value view;
  if (!hil_runtime_output(number, &view)) {
    return complain(TextLine() << "output " << number << " cannot be read\n");
  }
  const TextLine path = TextLine() << prefix << "-" << number << ".bin";
  return write_file(path.c_str(), view.data);
}

bool write_outputs(const Options& options) {
  for (uint32_t i = 0; i < hil_runtime_shape().outputs; ++i) {
    if (!write_output(options.output, i)) return false;
  }
  return true;
}

}  // namespace

bool wants_one_shot(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "-m") == 0) return true;
  }
  return false;
}

int one_shot(int argc, const char* const* argv) {
  use_plain_text();
  hil_init_runtime();
  Options options;
  const bool good = parse(argc, argv, &options) && load(options) && set_inputs(options) && run() &&
                    write_outputs(options);
  return good ? 0 : 1;
}

}  // namespace hil
