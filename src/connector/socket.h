// socket.h - addresses and sockets below TcpListenSocket and TcpConnection. Private to the connector layer.
#pragma once

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "rdmacomm/connector.h"
#include "rdmacomm/deadline.h"
#include "rdmacomm/qp_address.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

/// An IPv4 or IPv6 address with its port. A value.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = sizeof(sockaddr_storage);

  [[nodiscard]] sockaddr* get() noexcept { return reinterpret_cast<sockaddr*>(&storage); }
  [[nodiscard]] const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
  [[nodiscard]] int family() const noexcept { return storage.ss_family; }
  [[nodiscard]] std::uint16_t port() const noexcept;
  void set_port(std::uint16_t port) noexcept;
  /// The address alone: an IPv4 address that came mapped into IPv6 is shown as what it is, a link-local one
  /// with its interface: "fe80::1%eth0".
  [[nodiscard]] std::string host() const;
  [[nodiscard]] std::string to_text() const;  ///< "10.0.0.1:2020", "[::1]:2020"
  [[nodiscard]] Gid as_gid() const noexcept;

  [[nodiscard]] static Result<SocketAddress> of_local_end(int fd);
  [[nodiscard]] static Result<SocketAddress> of_peer(int fd);
  /// The local address from which packets to `peer` leave. Nothing is sent.
  [[nodiscard]] static Result<SocketAddress> towards(const SocketAddress& peer);
};

/// "host:port", with brackets where the host is an IPv6 address without them.
[[nodiscard]] std::string host_port_text(std::string_view host, std::uint16_t port);
/// "10 s", "250 ms".
[[nodiscard]] std::string duration_text(std::chrono::milliseconds duration);

/// All addresses of a host, at least one. Asks name servers without a deadline (getaddrinfo(3) knows none): see
/// resolve_within().
/// kInvalidArgument: it has none, or link-local ones without their interface only, or no host is named.
[[nodiscard]] Result<std::vector<SocketAddress>> resolve(const HostPort& where);

/// Every address of this host, of one family.
[[nodiscard]] SocketAddress any_address(int family, std::uint16_t port);

/// Whether a program of this host can have `address` as its own: an address of an interface, or every address.
[[nodiscard]] bool is_of_this_host(SocketAddress address);

/// A TCP socket that is neither inherited by programs nor blocking.
[[nodiscard]] Result<UniqueFd> open_socket(int family);
/// The marks of its packets alone: for a socket that is not connected yet. The ways in which a dead connection is
/// noticed would end a connect() that nobody answers after options.dead_host_after, whatever time it has.
[[nodiscard]] Status mark_socket(int fd, const TcpOptions& options);
/// Marks, and the ways in which a dead connection is noticed.
[[nodiscard]] Status set_up_socket(int fd, const TcpOptions& options);

/// Makes reads of a descriptor return at once.
[[nodiscard]] Status set_nonblocking(int fd);

enum class Waited : std::uint8_t { kReady, kTimeout, kCancelled };
/// Waits until poll(2) reports `events` or an end of the connection on `fd`, or `cancel_fd` becomes readable.
/// Either descriptor may be -1: it is not waited for.
[[nodiscard]] Waited wait_for(int fd, short events, int cancel_fd, Deadline deadline);

}  // namespace rdmacomm
