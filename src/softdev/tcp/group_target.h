// group_target.h - receives datagrams of other hosts for one member of a multicast group.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/unique_fd.h"
#include "softdev/local/local_wire.h"
#include "softdev/tcp/datagram_format.h"
#include "softdev/tcp/tcp_served.h"

namespace rdmacomm::softdev {

class TcpOwner;
class TcpService;

/// A socket that receives the datagrams to `group`. It joins the group on all interfaces of the device.
/// Returns  not valid and errno on failure. ENODEV: no interface can be used.
[[nodiscard]] UniqueFd join_group(TcpService& service, const ibv_gid& group);

/// The membership of one queue pair in one group. A datagram that finds no receive is lost. The sender may be any
/// process, as on hardware: only the Q_Key protects the queue pair.
/// Threads: one at a time, see TcpService.
class GroupTarget final : public TcpServed {
 public:
  GroupTarget(TcpService& service, UniqueFd socket, const ibv_gid& group, const TcpOwner& own);

  [[nodiscard]] bool progress() override;
  [[nodiscard]] int socket() const noexcept override { return socket_.get(); }
  [[nodiscard]] std::uint32_t events() const noexcept override;
  [[nodiscard]] bool has_received() const noexcept override { return has_received_; }
  [[nodiscard]] bool has_more() const noexcept override { return has_more_; }
  bool forget(std::uint32_t qpn, bool comes_again) override;
  bool leave(std::uint32_t qpn, const ibv_gid& group) override;

 private:
  /// Upper bound of the senders whose wires are kept.
  static constexpr std::size_t kMaxSenders = 64;

  void deliver(std::size_t bytes, const ibv_gid& from);
  [[nodiscard]] bool is_honest(const GroupDatagram& head, std::size_t bytes, const ibv_gid& from) const noexcept;
  [[nodiscard]] LocalWire& wire_of(std::uint32_t initiator_qpn);

  TcpService& service_;
  UniqueFd socket_;
  const ibv_gid group_;
  const std::uint32_t own_qpn_;
  const std::uint32_t pd_;
  std::map<std::uint32_t, std::unique_ptr<LocalWire>> wires_;
  std::vector<std::byte> datagram_;
  bool has_received_ = false;
  bool has_more_ = false;
  bool over_ = false;
};

}  // namespace rdmacomm::softdev
