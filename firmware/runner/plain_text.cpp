#include "runner/plain_text.h"

#include "platform/host_files.h"
#include "runner/text_line.h"
#include "target_library/link.h"
#include "target_library/program.h"

namespace {

void print_log(hil_log_level, const char* text) {
  hil::TextLine line;
  line << text << "\n";
  hil::print(line.c_str());
}

void print_fault(const hil_fault_record* fault) {
  static const char* const kNames[] = {"r0", "r1", "r2", "r3", "r12", "lr", "pc", "xpsr"};
  hil::TextLine line;
  line << "fault: exception " << fault->exception;
  if (fault->has_status) {
    line << " cfsr ";
    line.hex(fault->cfsr) << " hfsr ";
    line.hex(fault->hfsr) << " mmfar ";
    line.hex(fault->mmfar) << " bfar ";
    line.hex(fault->bfar);
  }
  for (int i = 0; i < 8; ++i) {
    line << " " << kNames[i] << " ";
    line.hex(fault->frame[i]);
  }
  line << " sp ";
  line.hex(fault->sp) << " in " << hil_current_operator() << "\n";
  hil::print(line.c_str());
}

constexpr hil_texts kTexts = {print_log, print_fault};

}  // namespace

void hil::use_plain_text() { hil_use_texts(&kTexts); }
