// tcp_raw_client.h - soft0's protocol between hosts, by hand: as an unknown client, or as a slow or wrong peer.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/unique_fd.h"
#include "rdmacomm/softdev.h"
#include "softdev/host/gid_table.h"
#include "softdev/host/target_route.h"
#include "softdev/local/link_terms.h"
#include "softdev/shared/control_protocol.h"
#include "softdev/shared/unix_packet.h"
#include "softdev/tcp/tcp_protocol.h"
#include "support/environment_variable.h"

namespace rdmacomm::softdev::test {

/// Sets the variable for contexts that are opened while it lives.
struct WireVariable : rdmacomm::testing::EnvironmentVariable {
  explicit WireVariable(const char* value) : EnvironmentVariable(kTcpVariable, value) {}
};

/// Data is sent without delay, and a receive that waits longer than this returns an error.
inline void prepare(const UniqueFd& socket) {
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  const timeval patience{20, 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
}

inline sockaddr_in loopback_port_of(std::uint32_t qpn) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(tcp_port_of(qpn));
  return address;
}

/// Connects to the port of queue pair `qpn` and knows the protocol. Not valid if no process listens.
inline UniqueFd connect_raw(std::uint32_t qpn) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = loopback_port_of(qpn);
  prepare(socket);
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) socket.reset();
  return socket;
}

template <typename Message>
void say(const UniqueFd& socket, const Message& message) {
  ASSERT_EQ(send(socket.get(), &message, sizeof(message), MSG_NOSIGNAL), static_cast<ssize_t>(sizeof(message)));
}

/// Returns the next message; all zero if none arrives.
template <typename Message>
Message hear(const UniqueFd& socket) {
  Message message;
  const ssize_t got = recv(socket.get(), &message, sizeof(message), MSG_WAITALL);
  EXPECT_EQ(got, static_cast<ssize_t>(sizeof(message)));
  return message;
}

/// The path of the requests to a queue pair that Qp::connect_to() has connected.
inline std::uint64_t usual_path() {
  std::vector<ibv_gid_entry> table;
  EXPECT_EQ(gid_table(DeviceIdentity{"soft0"}, table), 0);
  ibv_ah_attr address{};
  address.is_global = 1;
  address.grh.dgid = table[1].gid;
  address.grh.sgid_index = 1;
  return path_word(sending_terms(DeviceIdentity{"soft0"}, table, 1, address));
}

/// The first message of a connection from queue pair `initiator` to `target`.
inline TcpGreeting connection_greeting(Service service, std::uint32_t initiator, std::uint32_t target) {
  TcpGreeting greeting;
  greeting.kind = GreetingKind::kConnection;
  greeting.service = service;
  greeting.initiator_qpn = initiator;
  greeting.target_qpn = target;
  greeting.path = usual_path();
  return greeting;
}

/// Accepts a greeting.
inline void welcome(const UniqueFd& socket) {
  TcpWelcome yes;
  yes.answer = Welcome::kYes;
  yes.read_depth = 16;
  say(socket, yes);
}

/// The answer to a greeting; kRefused if none arrives.
inline Welcome welcome_of(const UniqueFd& socket) {
  TcpWelcome welcome;
  const ssize_t got = recv(socket.get(), &welcome, sizeof(welcome), MSG_WAITALL);
  return got == static_cast<ssize_t>(sizeof(welcome)) ? welcome.answer : Welcome::kRefused;
}

/// The answer to an expected peer, after the device has asked for confirmation. While the device asks another
/// connection, as for the peer's own, it answers "soon".
inline Welcome welcome_once_asked(UniqueFd& socket, const TcpGreeting& greeting) {
  Welcome answer = Welcome::kSoon;
  while (answer == Welcome::kSoon) {
    socket = connect_raw(greeting.target_qpn);
    EXPECT_EQ(send(socket.get(), &greeting, sizeof(greeting), MSG_NOSIGNAL), static_cast<ssize_t>(sizeof(greeting)));
    answer = welcome_of(socket);
  }
  return answer;
}

/// Whether the peer closes the connection without sending anything more.
inline bool is_closed(const UniqueFd& socket) {
  std::byte byte{};
  const ssize_t got = recv(socket.get(), &byte, 1, 0);
  return got == 0 || (got < 0 && errno == ECONNRESET);
}

/// A queue pair number whose port belongs to the test, which therefore is the peer.
struct ManualPeer {
  std::uint32_t number = 0;
  UniqueFd name;  // of the block: no device uses its numbers
  UniqueFd listener;

  /// Its number is less than all other queue pair numbers, or greater.
  enum class Place { kFirst, kLast };

  explicit ManualPeer(Place place = Place::kLast) {
    for (std::uint32_t i = 1; !listener && i < kQpnBlocks; ++i) {
      const std::uint32_t block = place == Place::kFirst ? i : kQpnBlocks - i;
      name = bind_to(block_socket_name(block));
      if (!name) continue;
      number = block << kQpnBlockBits;
      listener.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const sockaddr_in address = loopback_port_of(number);
      prepare(listener);
      const int on = 1;
      setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
      const bool mine = bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
      if (!mine || listen(listener.get(), 4) != 0) listener.reset();
    }
    ++number;
  }
  [[nodiscard]] UniqueFd accept() const {
    UniqueFd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    prepare(socket);
    EXPECT_TRUE(socket);
    return socket;
  }
};

}  // namespace rdmacomm::softdev::test
