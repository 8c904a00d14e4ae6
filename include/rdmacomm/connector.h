// connector.h - how peers connect: addresses, timeouts, and TCP connections that carry messages.
// Layer: connector. Uses: base.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rdmacomm/deadline.h"
#include "rdmacomm/handle.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

class RDMACOMM_API Connector;
template <>
inline constexpr const char* detail::kHandleName<Connector> = "TCPConnector";
class RDMACOMM_API TcpListenSocket;
template <>
inline constexpr const char* detail::kHandleName<TcpListenSocket> = "TCPListener";

/// How peers find each other and connect their queue pairs. Both ends use the same kind. How to choose:
/// docs/addressing.md "TCP or rdma_cm".
enum class ConnectorKind : std::uint8_t {
  kAuto,  ///< rdma_cm on iWARP devices, which need it; else TCP
  kTcp,   ///< a TCP connection, over which the peers exchange the addresses of their queue pairs
  kCm,    ///< rdma_cm, which connects the queue pairs itself
};

[[nodiscard]] RDMACOMM_API const char* to_text(ConnectorKind kind) noexcept;  ///< "auto", "tcp", "cm"
/// The kind with that name, the reverse of to_text().
///
/// Returns  kInvalidArgument: `text` is none of the three
[[nodiscard]] RDMACOMM_API Result<ConnectorKind> connector_kind_from(std::string_view text);

/// The port of servers for which no other port is given.
inline constexpr std::uint16_t kDefaultPort = 2020;

/// A host and a TCP port. A value.
struct RDMACOMM_API HostPort {
  std::string host = {};  ///< a name or an address ("10.0.0.1", "::1", "[::1]"); listeners: empty is any address
  std::uint16_t port = kDefaultPort;  ///< 1..65535; listeners: 0 lets the system choose one

  /// Reads a host, or a host and a port in the form of to_text(). Does not look up the host.
  ///
  /// text          HOST or HOST:PORT. An IPv6 address with a port is in brackets: "[::1]:2020"
  /// default_port  used if `text` has no port
  /// Returns       kInvalidArgument: the context has the text and the reason
  [[nodiscard]] static Result<HostPort> parse(std::string_view text, std::uint16_t default_port = kDefaultPort);
  [[nodiscard]] std::string to_text() const;  ///< "node7:2020", "[::1]:2020"
};

/// Timeouts and socket options of TCP connections. A value.
struct RDMACOMM_API TcpOptions {
  /// Clients: how long to try to reach the server, which may start later than the client. Servers: how long to look up
  /// the name of the host at which they listen. 1 ms..1 h.
  std::chrono::milliseconds connect_timeout{10'000};
  /// How long a peer may take for each part of the handshake: its hello; its answer and the connecting of all queue
  /// pairs; the final barrier. 1 ms..1 h.
  std::chrono::milliseconds handshake_timeout{10'000};
  /// How long a host may be silent before its connections count as lost. 1 s..1 h, in steps of 1 s. This is for
  /// failures of hosts and networks: the death of a *process* is noticed at once. It also limits how long a send waits
  /// while the buffers of a connection are full (some 100 KiB of messages that the peer's application has not read).
  std::chrono::seconds dead_host_after{4};
  std::optional<std::uint8_t> type_of_service =
      {};                            ///< IP_TOS or IPV6_TCLASS: DSCP (6 bits) and ECN (2 bits); empty: system's
  std::optional<int> priority = {};  ///< SO_PRIORITY, 0..6 (7: with CAP_NET_ADMIN); empty: system's

  /// Checks the ranges above.
  ///
  /// Returns  kInvalidArgument: a value outside its range; the context names it
  [[nodiscard]] Status validate() const;
};

/// A TCP connection to a peer that carries whole messages. Both ends send each other the data that they need to connect
/// their queue pairs. Endpoints have one: EndPoint::send_message() and the like. This class is for programs that have
/// no sessions, and create their queue pairs with RDMAAdapter. A handle: copies share the connection, which closes with
/// the last copy.
///
/// Threads  any thread. Messages of several senders never mix
///
/// All functions that send or receive return, besides the codes that they list:
///
/// - kTimeout: the deadline passed. If a message was sent in part by then, the connection cannot be used any more
/// - kPeerClosed: the peer has called close()
/// - kPeerLost: the connection ended without notice, or the peer's host is silent
/// - kBadMessage, kVersionMismatch: the peer's bytes are no message of this version; nothing more will be received
/// - kStopped: close() was called locally
///
/// Data that arrived before the connection ended can still be received.
class RDMACOMM_API TCPConnector : public detail::SharedHandle<Connector> {
 public:
  using SharedHandle::SharedHandle;
  /// Maximum size of a message: 1 MiB.
  static constexpr std::size_t kMaxMessageBytes = std::size_t{1} << 20;

  /// Connects to a server that listens with TCPListener. Tries every address of the host in turn. Repeats this while
  /// connections are refused, until options.connect_timeout has passed, because the server may start later than its
  /// client.
  ///
  /// Returns  std::errc::connection_refused: no process listens there; kTimeout: no answer at all;
  ///          kInvalidArgument: options.validate(), or a host that has no address;
  ///          std::errc::operation_not_permitted: a priority that needs CAP_NET_ADMIN; else the system's error
  ///
  /// A thread that waits for the resolver may outlive the call (getaddrinfo(3) has no deadline); it ends by itself.
  [[nodiscard]] static Result<TCPConnector> connect(const HostPort& server, const TcpOptions& options = {});

  /// Sends one message of up to kMaxMessageBytes. Returns when the system has taken the bytes. Only an answer shows
  /// that the peer has read them.
  [[nodiscard]] Status send_message(std::span<const std::byte> message, Deadline deadline) const;
  /// Waits for the next message that the peer sends by send_message().
  [[nodiscard]] Result<std::vector<std::byte>> receive_message(Deadline deadline) const;
  /// A barrier: returns when both ends have called it with the same tag. Unprintable bytes count as '?'.
  ///
  /// Returns  kTimeout: may be called again with the same tag, to continue waiting; kWrongState: the same, but the peer
  ///          waits at another tag; kInvalidArgument: a tag of more than 255 bytes
  [[nodiscard]] Status sync_with_peer(std::string_view tag, Deadline deadline) const;
  /// Tells the peer that the connection ends in order, and ends all local waits. Takes at most 50 ms.
  void close() const;

  [[nodiscard]] const std::string& peer_address() const;   ///< "10.0.0.2:41234"; valid while the connection lives
  [[nodiscard]] const std::string& local_address() const;  ///< "10.0.0.1:2020"; valid while the connection lives
};

/// Accepts TCP connections, one after the other. Servers with many clients should use a ServerSession: it accepts on
/// several threads and refuses clients that take too long. A handle: copies share the socket.
///
/// Threads  accept() by one thread at a time; the other functions by any thread
class RDMACOMM_API TCPListener : public detail::SharedHandle<TcpListenSocket> {
 public:
  using SharedHandle::SharedHandle;

  /// Listens at `where`. An empty host means every address, IPv6 and IPv4; port 0 lets the system choose one.
  ///
  /// Returns  std::errc::address_in_use: another program listens there; kInvalidArgument: options.validate(), or a
  ///          host that has no address; std::errc::address_not_available: this host does not have the address;
  ///          std::errc::permission_denied: a port below 1024 without the right to use it;
  ///          std::errc::resource_unavailable_try_again: no name server answered within options.connect_timeout
  [[nodiscard]] static Result<TCPListener> listen(const HostPort& where, const TcpOptions& options = {});

  /// Waits for the next client that connects and sends its hello. A client that sends no hello within
  /// TcpOptions::handshake_timeout, or sends other data, is dropped, and the call waits for the next client.
  ///
  /// Returns  kTimeout; or the system's error, for example std::errc::too_many_files_open: pause before trying again
  [[nodiscard]] Result<TCPConnector> accept(Deadline deadline) const;
  [[nodiscard]] std::uint16_t port() const;          ///< the actual port, also if 0 was asked for
  [[nodiscard]] const std::string& address() const;  ///< "[::]:2020"; valid while the socket lives
};

}  // namespace rdmacomm
