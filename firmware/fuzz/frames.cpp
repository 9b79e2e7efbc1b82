// libFuzzer: bytes as what arrives on the link. First the decoder alone; then the bytes as records
// (type, seq:u8, length:u16, payload), each a frame with a good CRC, which takes it into the
// requests; at a type of 0x20 the firmware passes its channels.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "runner/pools.h"
#include "target_library/channels.h"
#include "target_library/framing.h"
#include "target_library/link.h"
#include "target_library/program.h"
#include "target_library/requests.h"

namespace {

constexpr size_t kLoadSize = 8;  // size, CRC; then the name of the method
constexpr size_t kRecord = 4;    // type, seq, length
constexpr uint8_t kPass = 0x20;  // as a type

uint8_t encoded[HIL_ENCODED_BOUND(HIL_TARGET_MAX_PAYLOAD)];
uint8_t payload[HIL_TARGET_MAX_PAYLOAD];
uint8_t answer[HIL_TARGET_MAX_PAYLOAD];
hil_decoder decoder;
hil_target target;

void check(bool holds) {
  if (!holds) std::abort();
}

void decode(const uint8_t* data, size_t size) {
  hil_frame frame;
  for (size_t i = 0; i < size; ++i) {
    if (hil_decode(&decoder, data[i], &frame)) check(frame.size <= HIL_TARGET_MAX_PAYLOAD);
  }
  hil_decode(&decoder, 0, &frame);
}

// An encoded frame must be decoded to the same frame.
void round_trip(const hil_frame& sent) {
  const size_t size = hil_encode_frame(&sent, encoded, sizeof encoded);
  check(size > 0);
  hil_frame frame;
  bool whole = false;
  for (size_t i = 0; i < size; ++i) whole = hil_decode(&decoder, encoded[i], &frame);
  check(whole && frame.type == sent.type && frame.seq == sent.seq && frame.size == sent.size);
  check(sent.size == 0 || std::memcmp(frame.payload, sent.payload, sent.size) == 0);
}

// No fuzzer guesses a CRC-32, and a program may jump in circles for ever.
void adjust(uint8_t type, size_t size) {
  if (type == HIL_REQUEST_LOAD && size >= kLoadSize) {
    uint32_t length = 0;
    std::memcpy(&length, payload, sizeof length);
    const uint32_t most = static_cast<uint32_t>(target.program.size);
    const uint32_t crc = hil_crc32(0, target.program.data, length < most ? length : most);
    std::memcpy(payload + sizeof length, &crc, sizeof crc);
  }
  if (type == HIL_REQUEST_STEP && size == sizeof(uint32_t)) std::memset(payload + 1, 0, size - 1);
}

void pass_channels() {
  static uint8_t samples[24];
  static uint8_t one;
  HIL_INPUT(samples, samples, sizeof samples);
  HIL_OUTPUT(same, samples, sizeof samples);
  HIL_INPUT(one, &one, sizeof one);
  HIL_OUTPUT(other, &one, sizeof one);
}

void request(uint8_t type, uint8_t seq, size_t size) {
  if (type == HIL_REQUEST_EXECUTE) return;
  if (type == kPass) pass_channels();
  adjust(type, size);
  round_trip({HIL_PROTOCOL_VERSION, type, seq, payload, size});  // seq: where DATA goes
  hil_writer reply = hil_writer_of(answer, sizeof answer);
  hil_handle_request(type, seq, {payload, size, true}, &reply);
  check(reply.ok && reply.size >= 2);
}

void requests(const uint8_t* data, size_t size) {
  hil_unload_program();
  hil_detach_channels();
  pass_channels();
  for (size_t at = 0; size - at >= kRecord;) {
    const uint8_t type = data[at];
    const uint8_t seq = data[at + 1];
    size_t length = static_cast<size_t>(data[at + 2] | data[at + 3] << 8);
    at += kRecord;
    if (length > size - at) length = size - at;
    if (length > HIL_TARGET_MAX_PAYLOAD) length = HIL_TARGET_MAX_PAYLOAD;
    std::memcpy(payload, data + at, length);
    request(type, seq, length);
    at += length;
  }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  target.build_id = HIL_BUILD_ID;
  target.configuration = "host/fuzz";
  target.write = [](const uint8_t*, size_t) { return true; };
  target.end = [](int) { std::abort(); };
  target.yield = hil_detach_channels;  // instead of waiting for ever at an input
  hil::grant_pools(&target);
  hil_use_target(&target);
  hil_init_runtime();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  decode(data, size);
  requests(data, size);
  return 0;
}
