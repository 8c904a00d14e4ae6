// Data from a queue pair of another host: its own requests, and answers to requests of the local queue pair.
#include <cstring>

#include "fuzz/properties.h"
#include "fuzz/soft0_scene.h"
#include "softdev/memory/requests.h"
#include "softdev/tcp/tcp_connection.h"
#include "softdev/tcp/tcp_protocol.h"

namespace rdmacomm::fuzz {
namespace {
namespace soft0_connection_target {

using softdev::FrameKind;
using softdev::TcpAnswer;
using softdev::TcpConnection;
using softdev::TcpRequest;

constexpr std::uint32_t kKey = 0x59454b21;  // stands for the memory's key; addresses count from its start
constexpr int kRounds = 16;

template <typename Frame>
std::vector<std::byte> bytes_of(const Frame& frame) {
  const auto bytes = std::as_bytes(std::span(&frame, 1));
  return {bytes.begin(), bytes.end()};
}

bool has_payload(const TcpRequest& request) {
  if (!softdev::is_remote_opcode(request.opcode)) return false;
  const auto opcode = static_cast<ibv_wr_opcode>(request.opcode);
  return softdev::is_send(opcode) || softdev::is_write(opcode);
}

/// Keys and addresses differ between processes, so an input contains placeholders. This replaces them.
std::vector<std::byte> translated(Bytes input, Soft0Scene& scene) {
  std::vector<std::byte> bytes(input.begin(), input.end());
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t left = bytes.size() - at;
    if (bytes[at] == static_cast<std::byte>(FrameKind::kRequest) && left >= sizeof(TcpRequest)) {
      TcpRequest request;
      std::memcpy(static_cast<void*>(&request), bytes.data() + at, sizeof(request));
      if (request.key == kKey) {
        request.key = scene.key();
        request.address += scene.address();
      }
      std::memcpy(bytes.data() + at, &request, sizeof(request));
      at += sizeof(request) + std::min<std::size_t>(has_payload(request) ? request.length : 0, left);
    } else if (bytes[at] == static_cast<std::byte>(FrameKind::kAnswer) && left >= sizeof(TcpAnswer)) {
      TcpAnswer answer;
      std::memcpy(static_cast<void*>(&answer), bytes.data() + at, sizeof(answer));
      at += sizeof(answer) + std::min<std::size_t>(answer.kind == TcpAnswer::kPayload ? answer.length : 0, left);
    } else {
      break;
    }
  }
  return bytes;
}

/// The output of soft0 always consists of frames, whatever its input was. The last frame may be cut if the connection
/// has ended.
void check_output(Bytes output) {
  while (!output.empty()) {
    std::size_t whole = 0;
    if (output.front() == static_cast<std::byte>(FrameKind::kRequest)) {
      if (output.size() < sizeof(TcpRequest)) return;
      TcpRequest request;
      std::memcpy(static_cast<void*>(&request), output.data(), sizeof(request));
      RDMACOMM_FUZZ_CHECK(softdev::is_remote_opcode(request.opcode) && request.length <= 64);
      whole = sizeof(request) + (has_payload(request) ? request.length : 0);
    } else {
      RDMACOMM_FUZZ_CHECK(output.front() == static_cast<std::byte>(FrameKind::kAnswer));
      if (output.size() < sizeof(TcpAnswer)) return;
      TcpAnswer answer;
      std::memcpy(static_cast<void*>(&answer), output.data(), sizeof(answer));
      RDMACOMM_FUZZ_CHECK(answer.kind >= TcpAnswer::kDone && answer.kind <= TcpAnswer::kUnreachable);
      RDMACOMM_FUZZ_CHECK(answer.length == 0 || answer.kind == TcpAnswer::kPayload);
      RDMACOMM_FUZZ_CHECK(answer.length <= Soft0Scene::kBytes);
      whole = sizeof(answer) + answer.length;
    }
    output = output.subspan(std::min(whole, output.size()));
  }
}

void run(Bytes input) {
  static Soft0Scene scene;
  scene.connect();
  scene.post_receives(scene.connected());
  Soft0Input ends(translated(input, scene));
  const auto own = scene.soft(scene.connected())->as_tcp_owner();
  const auto connection = std::make_shared<TcpConnection>(
      scene.context().premises().tcp, std::move(ends.socket), own,
      TcpConnection::Ends{1, true, true, {scene.peer(), {4096, 16}, softdev::Service::kReliable}});
  own->adopt(connection);
  const std::uint64_t sends = scene.post_sends();
  std::vector<std::byte> output;
  bool goes_on = true;
  for (int round = 0; goes_on && round < kRounds; ++round) {
    goes_on = connection->progress();
    output = std::move(output) + ends.output();
    goes_on = goes_on && (connection->has_more() || connection->has_received());
  }
  connection->answer_what_is_owed();
  check_output(std::move(output) + ends.output());
  ends.close();
  for (int round = 0; connection->progress() && round < kRounds; ++round) continue;
  scene.check_completions(sends);
  scene.take_events();
}

std::vector<std::byte> request(ibv_wr_opcode opcode, std::uint32_t length, std::uint64_t address = 0) {
  TcpRequest head;
  head.opcode = static_cast<std::uint8_t>(opcode);
  head.length = length;
  head.key = kKey;
  head.address = address;
  head.operand = 1;
  std::vector<std::byte> bytes = bytes_of(head);
  if (has_payload(head)) bytes.resize(bytes.size() + length, std::byte{7});
  return bytes;
}

std::vector<std::byte> answer(TcpAnswer::Kind kind, std::uint32_t done, std::uint32_t length = 0) {
  TcpAnswer head;
  head.kind = kind;
  head.done = done;
  head.length = length;
  head.status = kind == TcpAnswer::kFailed ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS;
  std::vector<std::byte> bytes = bytes_of(head);
  bytes.resize(bytes.size() + length, std::byte{9});
  return bytes;
}

std::vector<Seed> seeds() {
  TcpRequest again;
  again.opcode = IBV_WR_SEND;
  again.again = 1;
  return {
      {"sends", request(IBV_WR_SEND, 8) + request(IBV_WR_SEND_WITH_IMM, 64) + request(IBV_WR_SEND, 0)},
      {"more_sends_than_receives", request(IBV_WR_SEND, 1) + request(IBV_WR_SEND, 1) + request(IBV_WR_SEND, 1) +
                                       request(IBV_WR_SEND, 1) + request(IBV_WR_SEND, 1)},
      {"send_that_is_too_long", request(IBV_WR_SEND, 65)},
      {"write", request(IBV_WR_RDMA_WRITE, 16, 512)},
      {"write_with_immediate", request(IBV_WR_RDMA_WRITE_WITH_IMM, 16, 512)},
      {"write_that_leaves_the_memory", request(IBV_WR_RDMA_WRITE, 16, 4090)},
      {"read", request(IBV_WR_RDMA_READ, 128, 64)},
      {"fetch_add", request(IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 8)},
      {"compare_swap_misaligned", request(IBV_WR_ATOMIC_CMP_AND_SWP, 8, 9)},
      {"sent_again_for_nothing", bytes_of(again)},
      {"all_answers", answer(TcpAnswer::kDone, 1) + answer(TcpAnswer::kPayload, 2, 64) + answer(TcpAnswer::kDone, 3) +
                          answer(TcpAnswer::kPayload, 4, 8)},
      {"answer_not_ready", answer(TcpAnswer::kNotReady, 0) + answer(TcpAnswer::kReady, 0)},
      {"answer_failed", answer(TcpAnswer::kFailed, 0)},
      {"answer_unreachable", answer(TcpAnswer::kDone, 1) + answer(TcpAnswer::kUnreachable, 1)},
      {"answer_to_what_was_not_sent", answer(TcpAnswer::kDone, 1009)},
  };
}

}  // namespace soft0_connection_target
}  // namespace

const Target soft0_connection{"soft0_connection", soft0_connection_target::run, soft0_connection_target::seeds};

}  // namespace rdmacomm::fuzz
