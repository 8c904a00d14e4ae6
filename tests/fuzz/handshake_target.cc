// The messages of a connection: the assembler, HELLO, REJECT and BARRIER.
#include <cstring>
#include <limits>

#include "connector/handshake.h"
#include "fuzz/properties.h"

namespace rdmacomm::fuzz {
namespace {
namespace handshake_target {

constexpr std::size_t kMaxAhead = std::size_t{64} << 10;  // memory in addition to the bytes that have arrived

struct Assembled {
  std::vector<Message> messages;
  std::optional<Error> error;
};

/// Passes the input in pieces of at most `piece` bytes.
Assembled assemble(Bytes input, std::size_t piece) {
  Assembled all;
  MessageAssembler assembler;
  while (!input.empty()) {
    const auto room = assembler.room();
    RDMACOMM_FUZZ_CHECK(!room.empty() && room.size() <= kMaxAhead);
    const auto arrived = input.first(std::min({piece, room.size(), input.size()}));
    std::memcpy(room.data(), arrived.data(), arrived.size());
    input = input.subspan(arrived.size());
    const Status filled = assembler.filled(arrived.size());
    if (!check_outcome(filled)) {
      all.error = filled.error();
      return all;
    }
    RDMACOMM_FUZZ_CHECK(assembler.in_the_middle());
    if (auto message = assembler.take()) {
      RDMACOMM_FUZZ_CHECK(!assembler.in_the_middle());
      all.messages.push_back(std::move(*message));
    }
  }
  return all;
}

/// frame_message() encodes every message that the assembler accepts to the same bytes again.
void check_frames(Bytes input, const std::vector<Message>& messages) {
  for (const Message& message : messages) {
    RDMACOMM_FUZZ_CHECK(message.payload.size() <= max_payload_bytes(message.type));
    const auto frame = frame_message(message.type, message.payload);
    RDMACOMM_FUZZ_CHECK(frame.has_value() && frame->size() <= input.size());
    RDMACOMM_FUZZ_CHECK(std::ranges::equal(*frame, input.first(frame->size())));
    input = input.subspan(frame->size());
  }
}

void check_payload(Bytes payload) {
  if (const auto hello = check_decode<Hello>(payload)) {
    check_harmless(hello->node);
    RDMACOMM_FUZZ_CHECK(hello->node.size() <= 255);
    RDMACOMM_FUZZ_CHECK(packed(*hello).size() <= max_payload_bytes(MessageType::kHello));
  }
  if (const auto reject = check_decode<Reject>(payload)) {
    check_harmless(reject->reason);
    RDMACOMM_FUZZ_CHECK(packed(*reject).size() <= max_payload_bytes(MessageType::kReject));
    check_error(make_error(reject->code, "the peer says: " + reject->reason));
  }
  if (const auto tag = check_decode<BarrierTag>(payload)) {
    check_harmless(tag->text);
    RDMACOMM_FUZZ_CHECK(tag->text.size() <= 255);
  }
}

void run(Bytes input) {
  const Assembled whole = assemble(input, std::numeric_limits<std::size_t>::max());
  const Assembled piecemeal = assemble(input, 1);
  RDMACOMM_FUZZ_CHECK(whole.error.has_value() == piecemeal.error.has_value());
  if (whole.error) RDMACOMM_FUZZ_CHECK(whole.error->code == piecemeal.error->code);
  RDMACOMM_FUZZ_CHECK(std::ranges::equal(whole.messages, piecemeal.messages, [](const Message& a, const Message& b) {
    return a.type == b.type && a.payload == b.payload;
  }));
  check_frames(input, whole.messages);
  check_payload(input);
  for (const Message& message : whole.messages) check_payload(message.payload);
}

std::vector<std::byte> frame(MessageType type, Bytes payload = {}) {
  return frame_message(type, payload).value();
}

std::vector<Seed> seeds() {
  const Hello hello{.node = "node7", .pid = 4711, .instance = 0x0123456789abcdef, .features = 1};
  const Reject reject{Errc::kServerBusy, "all 32 places are taken"};
  const auto user = bytes_of("some bytes of the application");
  auto future = frame(MessageType::kHello);
  future[4] = std::byte{2};
  return {
      {"hello", frame(MessageType::kHello, hello.encode())},
      {"hello_payload", hello.encode()},
      {"reject", frame(MessageType::kReject, reject.encode())},
      {"reject_payload", reject.encode()},
      {"hello_barrier_goodbye", frame(MessageType::kHello, hello.encode()) +
                                    frame(MessageType::kBarrier, BarrierTag{"ready"}.encode()) +
                                    frame(MessageType::kGoodbye)},
      {"user_and_heartbeat", frame(MessageType::kUser, user) + frame(MessageType::kHeartbeat)},
      {"another_version", std::move(future)},
      {"http", bytes_of("GET / HTTP/1.1\r\nHost: node7\r\n\r\n")},
  };
}

}  // namespace handshake_target
}  // namespace

const Target handshake{"handshake", handshake_target::run, handshake_target::seeds};

}  // namespace rdmacomm::fuzz
