// datagram_wire.h - sends datagrams to the target that each of them names.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <utility>

#include "softdev/local/local_wire.h"
#include "softdev/local/named_targets.h"
#include "softdev/local/wire.h"
#include "softdev/queues/premises.h"
#include "softdev/tcp/group_sender.h"
#include "softdev/tcp/tcp_datagrams.h"

namespace rdmacomm::softdev {

/// Sends each request of a datagram queue pair to the target of its address handle and number, or to all members of a
/// group. Uses TCP for targets on other hosts, and for another user's targets on this host, which share no memory.
class DatagramWire final : public Wire {
 public:
  DatagramWire(const Premises& premises, const LocalEnd& own)
      : premises_(premises), nobody_(own, 0), targets_(own), own_(own), groups_(premises.port) {}

  [[nodiscard]] ExecResult exec(const ibv_send_wr& wr) noexcept override;
  void advance() noexcept override;
  [[nodiscard]] std::uint32_t rnr_timer_code() const noexcept override { return 0; }
  /// True if completed datagrams for other hosts still wait.
  [[nodiscard]] bool has_unsent() const noexcept;
  /// Returns their senders, which need the wire no more.
  [[nodiscard]] std::list<TcpDatagrams> take_unsent();

 private:
  ExecResult send_to_group(const ibv_send_wr& wr) noexcept;
  ExecResult send_here(const ibv_send_wr& wr) noexcept;
  ExecResult send_by_tcp(const ibv_send_wr& wr, const Route& route) noexcept;
  [[nodiscard]] bool is_another_users(std::uint32_t qpn) const;

  const Premises& premises_;
  LocalWire nobody_;  ///< finds errors in a request itself
  NamedTargets targets_;
  using RemoteTarget = std::pair<std::array<std::uint8_t, sizeof(ibv_gid)>, std::uint32_t>;
  /// Upper bound of the remote targets kept.
  static constexpr std::size_t kMaxRemoteTargets = 4096;
  const LocalEnd own_;
  std::map<RemoteTarget, TcpDatagrams> remote_targets_;
  GroupSender groups_;
};

}  // namespace rdmacomm::softdev
