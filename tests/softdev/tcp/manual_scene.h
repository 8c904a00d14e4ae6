// manual_scene.h - a queue pair whose peer on another host is played by the test, which decides what to send and when.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "softdev/tcp/tcp_raw_client.h"
#include "softdev/verbs/raw_verbs.h"

namespace rdmacomm::softdev::test {

/// A queue pair that is connected to the test.
struct ManualScene {
  WireVariable variable{"tcp"};
  Node node;
  Memory memory{node};
  ManualPeer peer;
  Qp qp;
  UniqueFd connection;
  TcpGreeting greeting;  // the queue pair's first

  explicit ManualScene(const QpSettings& settings = {}) : qp(node, settings) {
    qp.connect_to(peer.number);
    EXPECT_EQ(qp.post_recv(memory.slice(0, 64), 1), 0);
    EXPECT_EQ(qp.post_recv(memory.slice(64, 64), 2), 0);
    connection = peer.accept();
    greeting = hear<TcpGreeting>(connection);
    EXPECT_EQ(greeting.initiator_qpn, qp.number());
    welcome(connection);
  }
  [[nodiscard]] bool is_answer() const {
    FrameKind next{};
    EXPECT_EQ(recv(connection.get(), &next, sizeof(next), MSG_PEEK), 1);
    return next == FrameKind::kAnswer;
  }
  /// Returns the queue pair's next request, which must be a SEND of 8 bytes.
  [[nodiscard]] TcpRequest next_request() const {
    while (is_answer()) (void)hear<TcpAnswer>(connection);
    const auto request = hear<TcpRequest>(connection);
    EXPECT_EQ(request.frame, FrameKind::kRequest);
    EXPECT_EQ(request.length, 8U);
    (void)hear<std::uint64_t>(connection);
    return request;
  }
  [[nodiscard]] TcpAnswer next_answer() const {
    const auto answer = hear<TcpAnswer>(connection);
    EXPECT_EQ(answer.frame, FrameKind::kAnswer);
    return answer;
  }
  void answer(std::uint32_t done, TcpAnswer::Kind kind = TcpAnswer::kDone, std::uint32_t length = 0) const {
    TcpAnswer answer;
    answer.done = done;
    answer.kind = kind;
    answer.length = length;
    say(connection, answer);
  }
  /// Sends a SEND from the test, which reports `done` of the queue pair's requests as done.
  void send(std::uint32_t done = 0, std::uint8_t again = 0, std::uint32_t length = 8) const {
    TcpRequest request;
    request.opcode = IBV_WR_SEND;
    request.again = again;
    request.length = length;
    request.done = done;
    say(connection, request);
    const std::vector<std::byte> payload(length, std::byte{7});
    ASSERT_EQ(::send(connection.get(), payload.data(), length, MSG_NOSIGNAL), static_cast<ssize_t>(length));
  }
  /// Returns the next answer that is not just a report of finished requests.
  [[nodiscard]] TcpAnswer next_news() const {
    TcpAnswer answer = next_answer();
    while (answer.kind == TcpAnswer::kDone) answer = next_answer();
    return answer;
  }
  /// Polls until the serving thread leaves the sockets to the polls.
  void poll_in_vain() {
    for (int i = 0; i < 10'000; ++i) ASSERT_TRUE(qp.poll().empty()) << "after " << i << " polls";
  }
  void post() { ASSERT_EQ(qp.post(send_request(3), memory.slice(128, 8)), 0); }
};

}  // namespace rdmacomm::softdev::test
