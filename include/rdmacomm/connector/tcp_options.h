// tcp_options.h - what can be chosen about TCP connections, and where they lead.
// Layer: connector. Uses: base.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "rdmacomm/base/result.h"

namespace rdmacomm {

inline constexpr std::uint16_t kDefaultPort = 2020;

/// A host and a TCP port. A value.
struct HostPort {
  std::string host = {};  ///< a name or an address ("10.0.0.1", "::1", "[::1]"); listeners: empty is any address
  std::uint16_t port = kDefaultPort;  ///< 1..65535; listeners: 0 lets the system pick one

  [[nodiscard]] std::string to_text() const;  ///< "node7:2020", "[::1]:2020"
};

/// Time limits and marks of TCP connections. A value.
struct TcpOptions {
  /// How long to try to reach a server, which may start later than the client. 1 ms..1 h.
  std::chrono::milliseconds connect_timeout{10'000};
  /// How long a peer may take for each part of the handshake: its hello; its answer and the connecting of all queue
  /// pairs; the final barrier. 1 ms..1 h.
  std::chrono::milliseconds handshake_timeout{10'000};
  /// How long a host may be silent before its connections count as lost. 1 s..1 h, in steps of 1 s. A *process*
  /// that dies is noticed at once; this is for hosts and networks. Once the buffers of a connection are full (some
  /// 100 KiB of user messages that the peer's application leaves unread), it limits the wait for room, too.
  std::chrono::seconds dead_host_after{4};
  std::optional<std::uint8_t> type_of_service =
      {};                            ///< IP_TOS or IPV6_TCLASS: DSCP (6 bits) and ECN (2 bits); empty: system's
  std::optional<int> priority = {};  ///< SO_PRIORITY, 0..6 (7: with CAP_NET_ADMIN); empty: system's

  /// kInvalidArgument: a value outside its range; the context names it.
  [[nodiscard]] Status validate() const;
};

}  // namespace rdmacomm
