#include "runner/server.h"

#include "platform/console.h"
#include "platform/framing.h"
#include "runner/events.h"
#include "runner/requests.h"
#include "runner/wire.h"

namespace hil {

namespace {

// Keeps its last response, encoded: a retransmitted request gets the same bytes again.
class Server {
 public:
  void take(uint8_t byte) {
    Frame frame;
    if (!decoder_.feed(byte, &frame) || frame.type >= kFirstEvent) return;
    if (!repeats(frame)) answer(frame);
    send_encoded(encoded_, encoded_size_);
  }

 private:
  bool repeats(const Frame& frame) const {
    return encoded_size_ > 0 && frame.seq == last_seq_ && frame.type == last_type_;
  }

  void answer(const Frame& request) {
    Reply reply(payload_, sizeof payload_);
    dispatch(request, reply);
    Frame response;
    response.type = request.type | kResponseBit;
    response.seq = request.seq;
    response.payload = reply.body().data();
    response.size = reply.body().size();
    last_seq_ = request.seq;
    last_type_ = request.type;
    encoded_size_ = encode_frame(response, encoded_, sizeof encoded_);
  }

  static void dispatch(const Frame& request, Reply& reply) {
    if (request.version != kProtocolVersion) {
      reply.fail(Code::kBadVersion, "this runner speaks version 2");
    } else if (request.seq == 0) {
      reply.fail(Code::kBadRequest, "seq 0 belongs to events");
    } else {
      handle_request(request.type, request.seq, Reader(request.payload, request.size), reply);
    }
  }

  FrameDecoder decoder_;
  uint8_t payload_[kMaxPayload];
  uint8_t encoded_[encoded_bound(kMaxPayload)];
  size_t encoded_size_ = 0;
  uint16_t last_seq_ = 0;
  uint8_t last_type_ = 0;
};

Server server;
uint8_t received[kMaxPayload];

}  // namespace

int serve() {
  console_open();
  send_ready();
  while (const size_t size = console_read(received, sizeof received)) {
    for (size_t i = 0; i < size; ++i) server.take(received[i]);
  }
  return 0;
}

}  // namespace hil
