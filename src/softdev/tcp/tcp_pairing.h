// tcp_pairing.h - how two connected queue pairs on different hosts recognize each other.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "softdev/tcp/tcp_protocol.h"

namespace rdmacomm::softdev {

/// The secrets of one connected queue pair and its peer. When a process ends, any program can take its queue pair
/// number and port, and must not be mistaken for the peer. So each queue pair draws a secret and shows it with every
/// connection. After the peer's first secret, only that secret is accepted. If connection management has exchanged the
/// secrets, the first one must be right, too. The secret is in every greeting, not only in the first one, so that a peer
/// whose first welcome was lost can connect again.
/// Threads: one at a time, the holder of the send queue's lock.
class TcpPairing {
 public:
  /// Draws the local secret of the next life, so that the peer can be told. Returns 0, or the errno value of
  /// getrandom(2): no secret.
  [[nodiscard]] int draw() noexcept;
  /// Starts a connected life, with queue pair `qpn` at `address`. Without draw(), if the peer is the same as before,
  /// the local secret stays: a queue pair may be connected to its peer again after RESET. Returns as draw().
  [[nodiscard]] int begin(const ibv_gid& address, std::uint32_t qpn) noexcept;
  /// The peer has told its secret.
  void expect(const TcpSecret& secret) noexcept { peers_ = secret; }
  /// The secret to show to the peer.
  [[nodiscard]] const TcpSecret& own() const noexcept { return own_; }
  /// True if `shown` is the peer's secret: the first secret in this life, or an equal one.
  [[nodiscard]] bool is_peers(const TcpSecret& shown) noexcept;

 private:
  TcpSecret own_{};
  bool is_drawn_ = false;                                  ///< own_ is for the next life
  std::optional<std::pair<ibv_gid, std::uint32_t>> peer_;  ///< the peer for which own_ was drawn
  std::optional<TcpSecret> peers_;
};

}  // namespace rdmacomm::softdev
