#include "runner/events.h"

#include "platform/console.h"
#include "platform/fault.h"
#include "platform/framing.h"
#include "platform/host_files.h"
#include "runner/executor.h"
#include "runner/identity.h"
#include "runner/text_line.h"
#include "runner/wire.h"

namespace {

using hil::Event;
using hil::Writer;

constexpr size_t kMaxEvent = 1024;

bool plain_text = false;

// Events have buffers of their own: a fault may occur while a response is being put together.
uint8_t payload[kMaxEvent];
uint8_t encoded[hil::encoded_bound(kMaxEvent)];

void send(Event type, const Writer& body) {
  hil::Frame frame;
  frame.type = static_cast<uint8_t>(type);
  frame.payload = body.data();
  frame.size = body.size();
  hil::send_encoded(encoded, hil::encode_frame(frame, encoded, sizeof encoded));
}

void print_fault(const hil::FaultRecord& fault) {
  static const char* const kNames[] = {"r0", "r1", "r2", "r3", "r12", "lr", "pc", "xpsr"};
  hil::TextLine line;
  line << "fault: exception " << fault.exception;
  if (fault.has_status) {
    line << " cfsr ";
    line.hex(fault.cfsr) << " hfsr ";
    line.hex(fault.hfsr) << " mmfar ";
    line.hex(fault.mmfar) << " bfar ";
    line.hex(fault.bfar);
  }
  for (int i = 0; i < 8; ++i) {
    line << " " << kNames[i] << " ";
    line.hex(fault.frame[i]);
  }
  line << " sp ";
  line.hex(fault.sp) << " in " << hil::current_operator() << "\n";
  hil::print(line.c_str());
}

void send_fault(const hil::FaultRecord& fault) {
  Writer body(payload, sizeof payload);
  body.i32(hil::current_instruction());
  body.u32(fault.exception);
  body.u8(fault.has_status ? 1 : 0);
  body.u32(fault.cfsr);
  body.u32(fault.hfsr);
  body.u32(fault.mmfar);
  body.u32(fault.bfar);
  for (const uint32_t word : fault.frame) body.u32(word);
  body.u32(fault.sp);
  body.str(hil::current_operator());
  send(Event::kFault, body);
}

}  // namespace

namespace hil {

void use_plain_text() { plain_text = true; }

void send_encoded(const uint8_t* frame, size_t size) {
  if (!console_write(frame, size)) system_exit(0);
}

void send_ready() {
  Writer body(payload, sizeof payload);
  body.str(build_id());
  send(Event::kReady, body);
}

void send_progress(uint32_t instruction) {
  Writer body(payload, sizeof payload);
  body.u32(instruction);
  send(Event::kProgress, body);
}

void send_log(LogLevel level, const char* text) {
  if (plain_text) return print((TextLine() << text << "\n").c_str());
  Writer body(payload, sizeof payload);
  body.u8(static_cast<uint8_t>(level));
  body.str(text);
  if (body.ok()) send(Event::kLog, body);
}

void report_fault(const FaultRecord& fault) { plain_text ? print_fault(fault) : send_fault(fault); }

void report_fatal(const char* what) {
  if (!plain_text) return send_log(LogLevel::kError, what);
  TextLine line;
  line << "fatal: " << what << "\n";
  print(line.c_str());
}

}  // namespace hil
