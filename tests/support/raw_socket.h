// raw_socket.h - a TCP client that sends any bytes.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"

namespace rdmacomm::testing {

/// A blocking socket connected to 127.0.0.1. Invalid if no process listens.
class RawSocket {
 public:
  /// source  the local address, "127.0.0.2" for example; nullptr: the system chooses, which is 127.0.0.1
  explicit RawSocket(std::uint16_t port, const char* source = nullptr)
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    if (source != nullptr) {
      const bool bound = ::inet_pton(AF_INET, source, &address.sin_addr) == 1 &&
                         ::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
      if (!bound) fd_.reset();
    }
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) fd_.reset();
  }

  [[nodiscard]] bool valid() const { return fd_.valid(); }
  [[nodiscard]] int fd() const { return fd_.get(); }
  bool send(std::span<const std::byte> bytes) const {
    return ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  bool send(std::string_view text) const { return send(std::as_bytes(std::span(text))); }
  void close() { fd_.reset(); }

  /// Reads until the peer closes or resets the connection; at most `limit` bytes; 10 s for each read.
  [[nodiscard]] std::vector<std::byte> read_all(std::size_t limit = 1 << 22) const {
    std::vector<std::byte> all;
    std::byte chunk[4096];
    while (all.size() < limit) {
      pollfd waited{fd_.get(), POLLIN, 0};
      if (::poll(&waited, 1, 10'000) <= 0) break;
      const ssize_t got = ::recv(fd_.get(), chunk, sizeof(chunk), 0);
      if (got <= 0) break;
      all.insert(all.end(), chunk, chunk + got);
    }
    return all;
  }

 private:
  UniqueFd fd_;
};

}  // namespace rdmacomm::testing
