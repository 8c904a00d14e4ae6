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
  /// The address without the port. An IPv4 address that is mapped into IPv6 is shown as IPv4, a link-local address with
  /// its interface: "fe80::1%eth0".
  [[nodiscard]] std::string host() const;
  [[nodiscard]] std::string to_text() const;  ///< "10.0.0.1:2020", "[::1]:2020"
  [[nodiscard]] Gid as_gid() const noexcept;

  [[nodiscard]] static Result<SocketAddress> of_local_end(int fd);
  [[nodiscard]] static Result<SocketAddress> of_peer(int fd);
  /// The local address from which packets to `peer` leave. Nothing is sent.
  [[nodiscard]] static Result<SocketAddress> towards(const SocketAddress& peer);
};

/// "host:port"; an IPv6 address without brackets gets them.
[[nodiscard]] std::string host_port_text(std::string_view host, std::uint16_t port);
/// "10 s", "250 ms".
[[nodiscard]] std::string duration_text(std::chrono::milliseconds duration);

/// All addresses of a host, at least one. Asks name servers without a deadline, because getaddrinfo(3) has none: see
/// resolve_within().
/// kInvalidArgument: the host has no address, or only link-local ones without their interface, or it is empty.
[[nodiscard]] Result<std::vector<SocketAddress>> resolve(const HostPort& where);

/// The address of one family that means every local address.
[[nodiscard]] SocketAddress any_address(int family, std::uint16_t port);

/// Whether a local program can bind to `address`: it is an address of an interface, or it means every address.
[[nodiscard]] bool is_of_this_host(SocketAddress address);

/// A non-blocking TCP socket that programs started by exec do not inherit.
[[nodiscard]] Result<UniqueFd> open_socket(int family);
/// Sets only the marks of its packets: for a socket that is not connected yet. The options that detect a dead
/// connection would end an unanswered connect() after options.dead_host_after, even if its deadline is later.
[[nodiscard]] Status mark_socket(int fd, const TcpOptions& options);
/// Sets the marks, and the options that detect a dead connection.
[[nodiscard]] Status set_up_socket(int fd, const TcpOptions& options);

/// Makes reads and writes of a descriptor return at once.
[[nodiscard]] Status set_nonblocking(int fd);

enum class Waited : std::uint8_t { kReady, kTimeout, kCancelled };
/// Waits until poll(2) reports `events` or an end of the connection on `fd`, or until `cancel_fd` becomes readable. A
/// descriptor of -1 is not waited for.
[[nodiscard]] Waited wait_for(int fd, short events, int cancel_fd, Deadline deadline);

}  // namespace rdmacomm
