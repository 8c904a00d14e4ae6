// tcp_pair.h - a listener and both ends of one connection.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <memory>
#include <string>

#include "connector/tcp_connection.h"
#include "connector/tcp_listen_socket.h"

namespace rdmacomm::testing {

inline Deadline soon() {
  return Deadline::after(std::chrono::seconds(20));
}  // generous deadline, not reached on success
inline Deadline tiny() {
  return Deadline::after(std::chrono::milliseconds(5));
}  // for deadlines that must pass

inline std::unique_ptr<Connector> accept_one(TcpListenSocket& listener) {
  pollfd waited{listener.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&waited, 1, 20'000), 1);
  auto accepted = listener.accept();
  EXPECT_TRUE(accepted.has_value()) << accepted.status().message();
  return accepted ? std::move(*accepted) : nullptr;
}

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}
inline std::string as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

struct TcpPair {
  explicit TcpPair(const std::string& host = "127.0.0.1", const TcpOptions& options = {}) {
    auto listening = TcpListenSocket::listen({host, 0}, options);
    EXPECT_TRUE(listening.has_value()) << listening.status().message();
    listener = std::move(*listening);
    auto connected = TcpConnection::connect({host, listener->port()}, options);
    EXPECT_TRUE(connected.has_value()) << connected.status().message();
    client = std::move(*connected);
    server = accept_one(*listener);
  }
  std::unique_ptr<TcpListenSocket> listener;
  std::unique_ptr<TcpConnection> client;
  std::unique_ptr<Connector> server;
};

}  // namespace rdmacomm::testing
