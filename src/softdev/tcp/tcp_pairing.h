// tcp_pairing.h - how two queue pairs of different hosts know each other again.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "softdev/tcp/tcp_protocol.h"

namespace rdmacomm::softdev {

/// The secrets of one connected queue pair and its peer. A number and its port are free when their process ends, and any program
/// may take them then: it is not to be taken for the peer. So each queue pair draws a secret and shows it with every
/// connection, and the secret that the peer shows first is the only one that is accepted afterwards. The secret is in each greeting,
/// not only in the first: a peer whose first welcome was lost can connect again.
/// Threads: one at a time, the holder of the send queue.
class TcpPairing {
 public:
  /// A connected life begins, with queue pair `qpn` at `address`. The own secret stays as long as that is the same: a queue pair that
  /// was RESET may be connected with it again. 0, or the errno value of getrandom(2): there is no secret.
  [[nodiscard]] int begin(const ibv_gid& address, std::uint32_t qpn) noexcept;
  /// The secret that is shown to the peer.
  [[nodiscard]] const TcpSecret& own() const noexcept { return own_; }
  /// Whether `shown` is the peer's: the first secret in this life, or that one again.
  [[nodiscard]] bool is_peers(const TcpSecret& shown) noexcept;

 private:
  TcpSecret own_{};
  std::optional<std::pair<ibv_gid, std::uint32_t>> peer_;  ///< for which own_ was drawn
  std::optional<TcpSecret> peers_;
};

}  // namespace rdmacomm::softdev
