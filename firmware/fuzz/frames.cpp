// libFuzzer: bytes as what arrives on the link. First the decoder alone; then the bytes as records
// (type, seq:u8, length:u16, payload), each a frame with a good CRC, which takes it into the
// requests.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "platform/console.h"
#include "platform/framing.h"
#include "runner/executor.h"
#include "runner/pools.h"
#include "runner/requests.h"
#include "runner/wire.h"

namespace {

constexpr uint8_t kLoad = 0x06;
constexpr uint8_t kExecute = 0x08;
constexpr uint8_t kStep = 0x09;
constexpr size_t kLoadSize = 8;  // size, CRC; then the name of the method
constexpr size_t kRecord = 4;    // type, seq, length

uint8_t encoded[hil::encoded_bound(hil::kMaxPayload)];
uint8_t payload[hil::kMaxPayload];
uint8_t answer[hil::kMaxPayload];
hil::FrameDecoder decoder;

void check(bool holds) {
  if (!holds) std::abort();
}

void decode(const uint8_t* data, size_t size) {
  hil::Frame frame;
  for (size_t i = 0; i < size; ++i) {
    if (decoder.feed(data[i], &frame)) check(frame.size <= hil::kMaxPayload);
  }
  decoder.feed(0, &frame);
}

// An encoded frame must be decoded to the same frame.
void round_trip(const hil::Frame& sent) {
  const size_t size = hil::encode_frame(sent, encoded, sizeof encoded);
  check(size > 0);
  hil::Frame frame;
  bool whole = false;
  for (size_t i = 0; i < size; ++i) whole = decoder.feed(encoded[i], &frame);
  check(whole && frame.type == sent.type && frame.seq == sent.seq && frame.size == sent.size);
  check(sent.size == 0 || std::memcmp(frame.payload, sent.payload, sent.size) == 0);
}

// No fuzzer guesses a CRC-32, and a program may jump in circles for ever.
void adjust(uint8_t type, size_t size) {
  if (type == kLoad && size >= kLoadSize) {
    uint32_t length = 0;
    std::memcpy(&length, payload, sizeof length);
    const uint32_t most = static_cast<uint32_t>(hil::program_pool().size);
    const uint32_t crc = hil::crc32(hil::program_pool().data, length < most ? length : most);
    std::memcpy(payload + sizeof length, &crc, sizeof crc);
  }
  if (type == kStep && size == sizeof(uint32_t)) std::memset(payload + 1, 0, size - 1);
}

void request(uint8_t type, uint8_t seq, size_t size) {
  if (type == kExecute) return;
  adjust(type, size);
  hil::Frame frame;
  frame.type = type;
  frame.seq = seq;  // where DATA goes
  frame.payload = payload;
  frame.size = size;
  round_trip(frame);
  hil::Reply reply(answer, sizeof answer);
  hil::handle_request(type, frame.seq, hil::Reader(payload, size), reply);
  check(reply.body().ok() && reply.body().size() >= 2);
}

void requests(const uint8_t* data, size_t size) {
  hil::unload_program();
  for (size_t at = 0; size - at >= kRecord;) {
    const uint8_t type = data[at];
    const uint8_t seq = data[at + 1];
    size_t length = static_cast<size_t>(data[at + 2] | data[at + 3] << 8);
    at += kRecord;
    if (length > size - at) length = size - at;
    if (length > hil::kMaxPayload) length = hil::kMaxPayload;
    std::memcpy(payload, data + at, length);
    request(type, seq, length);
    at += length;
  }
}

}  // namespace

// In place of a console.
namespace hil {

bool console_write(const uint8_t*, size_t) { return true; }
void system_exit(int) { std::abort(); }
void print(const char*) {}

}  // namespace hil

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  hil::init_runtime();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  decode(data, size);
  requests(data, size);
  return 0;
}
