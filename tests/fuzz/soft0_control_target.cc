// Requests to soft0's UNIX socket by processes of the same host, before and after they have proven that they may share
// memory.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "fuzz/properties.h"
#include "fuzz/soft0_scene.h"
#include "softdev/local/peer.h"
#include "softdev/shared/control_protocol.h"
#include "softdev/shared/unix_packet.h"

namespace rdmacomm::fuzz {
namespace {
namespace soft0_control_target {

using softdev::Answer;
using softdev::Peer;
using softdev::Request;
using softdev::RequestKind;

// Placeholders in an input for values that differ between processes.
constexpr std::uint32_t kNumber = 0xfffff1;
constexpr std::uint32_t kKey = 0x59454b21;  // addresses count from the start of the memory
constexpr std::uint64_t kLife = 0x4546494c;
constexpr std::uint32_t kLast = 0x7fffffff;  // `sequence` of the request that ends a run
constexpr std::uint32_t kNoArena = 99;
constexpr int kAnswerMs = 5000;
constexpr int kMaxRuns = 1000;  // per connection: the server remembers the requested queue pairs
constexpr std::size_t kMaxPackets = 8;

/// The first byte is the number of bytes after the packet's header. The second byte says whether a peer that has proven
/// itself sends it. An input has several packets.
struct Packet {
  bool is_proven = true;
  std::vector<std::byte> bytes;
};

std::vector<Packet> packets_of(Bytes input, Soft0Scene& scene) {
  std::vector<Packet> packets;
  while (input.size() > 2 && packets.size() < kMaxPackets) {
    const std::size_t whole = sizeof(Request) + std::to_integer<std::size_t>(input[0]);
    Packet packet{.is_proven = input[1] != std::byte{1}, .bytes = {}};
    input = input.subspan(2);
    const Bytes part = input.first(std::min(whole, input.size()));
    packet.bytes.assign(part.begin(), part.end());
    input = input.subspan(part.size());
    if (packet.bytes.size() >= sizeof(Request)) {
      Request request;
      std::memcpy(static_cast<void*>(&request), packet.bytes.data(), sizeof(request));
      if (request.qpn == kNumber) request.qpn = scene.connected()->qp_num;
      if (request.sequence == kLast) request.sequence = 0;
      if (request.operand == kLife) request.operand = scene.life();
      if (request.rkey == kKey) {
        request.rkey = scene.key();
        request.address += scene.address();
      }
      std::memcpy(packet.bytes.data(), &request, sizeof(request));
    }
    packets.push_back(std::move(packet));
  }
  return packets;
}

/// A connection to soft0's server.
class Client {
 public:
  explicit Client(Soft0Scene& scene, bool proves) : scene_(scene), proves_(proves) { connect(); }

  void send(Bytes packet) {
    if (!softdev::send_packet(socket(), packet)) connect();
  }
  /// Reads answers until the answer to a last request. The server may have ended the connection before.
  void check_answers() {
    Request last;
    last.kind = RequestKind::kArena;
    last.sequence = kLast;
    last.argument = kNoArena;
    if (!softdev::send_packet(socket(), std::as_bytes(std::span(&last, 1)))) return connect();
    for (;;) {
      Answer answer;
      std::vector<std::byte> payload(softdev::kMaxControlPayload + 1);
      UniqueFd descriptor;
      const ssize_t got = softdev::receive_packet(socket(), std::as_writable_bytes(std::span(&answer, 1)), payload,
                                                  &descriptor, kAnswerMs);
      RDMACOMM_FUZZ_CHECK(got >= 0 || errno == ECONNRESET);  // negative: no answer in time
      if (got <= 0) return connect();
      RDMACOMM_FUZZ_CHECK(static_cast<std::size_t>(got) >= sizeof(Answer));
      RDMACOMM_FUZZ_CHECK(static_cast<std::size_t>(got) <= sizeof(Answer) + softdev::kMaxControlPayload);
      RDMACOMM_FUZZ_CHECK(answer.error >= 0 && answer.error < 200);
      if (!proves_ && descriptor) RDMACOMM_FUZZ_CHECK(false && "a descriptor for somebody who has proven nothing");
      if (answer.sequence != kLast) continue;
      // A client that fails to prove itself a second time loses its permissions.
      RDMACOMM_FUZZ_CHECK(answer.error == EPERM || (proves_ && answer.error == ENOENT));
      if (++runs_ >= kMaxRuns || proves_ == (answer.error == EPERM)) connect();
      return;
    }
  }

 private:
  [[nodiscard]] int socket() const { return proves_ ? peer_->socket() : socket_.get(); }
  void connect() {
    runs_ = 0;
    socket_ = scene_.context().server().connect_to_itself();
    RDMACOMM_FUZZ_CHECK(socket_.valid());
    if (!proves_) return;
    int error = 0;
    peer_ = Peer::connect_by(std::move(socket_), getpid(), error);
    RDMACOMM_FUZZ_CHECK(peer_ != nullptr);
  }

  Soft0Scene& scene_;
  const bool proves_;
  UniqueFd socket_;
  std::shared_ptr<Peer> peer_;
  int runs_ = 0;
};

void run(Bytes input) {
  static Soft0Scene scene;
  static Client proven(scene, true);
  static Client unproven(scene, false);
  if (!scene.is_connected()) scene.connect();
  for (const Packet& packet : packets_of(input, scene)) {
    (packet.is_proven ? proven : unproven).send(packet.bytes);
  }
  proven.check_answers();
  unproven.check_answers();
  scene.check_completions(0);
  scene.take_events();
}

std::vector<std::byte> packet(RequestKind kind, Bytes payload = {}, bool is_proven = true, std::uint64_t address = 0) {
  Request request;
  request.kind = kind;
  request.sequence = 7;
  request.qpn = kNumber;
  request.peer_qpn = 0x1001;
  request.rkey = kKey;
  request.address = address;
  request.length = 16;
  request.operand = 1;
  std::vector<std::byte> bytes = {static_cast<std::byte>(payload.size()), static_cast<std::byte>(is_proven ? 0 : 1)};
  return std::move(bytes) + std::as_bytes(std::span(&request, 1)) + payload;
}

std::vector<std::byte> report(std::uint32_t event) {
  Request request;
  request.kind = RequestKind::kFail;
  request.qpn = kNumber;
  request.argument = event;
  request.operand = kLife;
  return std::vector<std::byte>(2) + std::as_bytes(std::span(&request, 1));
}

std::vector<Seed> seeds() {
  const auto bytes = bytes_of("sixteen bytes it");
  return {
      {"queue_pair_and_detach", packet(RequestKind::kQueuePair) + packet(RequestKind::kDetach)},
      {"failure", report(IBV_EVENT_QP_ACCESS_ERR)},
      {"failure_by_another_event", report(IBV_EVENT_DEVICE_FATAL)},
      {"failure_by_no_event", report(0x7fffffff)},
      {"channel", packet(RequestKind::kChannel)},
      {"table_and_arena", packet(RequestKind::kTable) + packet(RequestKind::kArena)},
      {"reports", packet(RequestKind::kFail) + packet(RequestKind::kLimit) + packet(RequestKind::kReleased)},
      {"write", packet(RequestKind::kWrite, bytes)},
      {"write_of_another_length", packet(RequestKind::kWrite, Bytes(bytes).first(5))},
      {"read", packet(RequestKind::kRead)},
      {"read_that_leaves_the_memory", packet(RequestKind::kRead, {}, true, 4090)},
      {"fetch_add", packet(RequestKind::kFetchAdd)},
      {"compare_swap_misaligned", packet(RequestKind::kCompareSwap, {}, true, 1)},
      {"invalidate", packet(RequestKind::kInvalidate)},
      {"hello_and_prove", packet(RequestKind::kHello) + packet(RequestKind::kProve)},
      {"unknown_reads", packet(RequestKind::kRead, {}, false)},
      {"unknown_proves", packet(RequestKind::kHello, {}, false) + packet(RequestKind::kProve, {}, false)},
      {"unknown_reports", packet(RequestKind::kFail, {}, false)},
  };
}

}  // namespace soft0_control_target
}  // namespace

const Target soft0_control{"soft0_control", soft0_control_target::run, soft0_control_target::seeds};

}  // namespace rdmacomm::fuzz
