#include "softdev/queues/datagram_wire.h"

#include <algorithm>

#include "softdev/host/multicast.h"
#include "softdev/host/soft_ah.h"
#include "softdev/host/soft_device.h"
#include "softdev/host/target_route.h"
#include "softdev/local/peer.h"
#include "softdev/memory/requests.h"
#include "softdev/queues/premises.h"
#include "softdev/queues/queue_pairs.h"

namespace rdmacomm::softdev {

bool groups_span_hosts(const Premises& premises) noexcept {
  return premises.tcp_use != TcpUse::kNever && !premises.identity.infiniband;
}

ExecResult DatagramWire::exec(const ibv_send_wr& wr) noexcept {
  const bool to_all = wr.wr.ud.remote_qpn == kMulticastQpn && SoftAh::from(wr.wr.ud.ah).is_multicast();
  if (to_all) return send_to_group(wr);
  const Route& route = SoftAh::from(wr.wr.ud.ah).route;
  return route.by_memory ? send_here(wr) : send_by_tcp(wr, route);
}

/// Sends to a target on this host. The target may belong to another user. If TCP was used for it before, TCP is used
/// again.
ExecResult DatagramWire::send_here(const ibv_send_wr& wr) noexcept {
  const std::uint32_t target = wr.wr.ud.remote_qpn;
  const Route loopback = loopback_route();
  if (remote_targets_.contains({std::to_array(loopback.target.raw), target})) return send_by_tcp(wr, loopback);
  LocalWire& wire = targets_.get(target);
  return !wire.is_up() && is_another_users(target) ? send_by_tcp(wr, loopback) : wire.send_datagram(wr);
}

bool DatagramWire::is_another_users(std::uint32_t qpn) const {
  return premises_.tcp_use != TcpUse::kNever && !premises_.queue_pairs.owns(qpn) && Peer::is_another_users(qpn);
}

ExecResult DatagramWire::send_by_tcp(const ibv_send_wr& wr, const Route& route) noexcept {
  const ExecResult checked = nobody_.send_datagram(wr);
  if (checked.is_done()) return checked;
  const RemoteTarget name{std::to_array(route.target.raw), wr.wr.ud.remote_qpn};
  auto found = remote_targets_.find(name);
  if (found == remote_targets_.end()) {
    if (remote_targets_.size() >= kMaxRemoteTargets) remote_targets_.clear();
    found = remote_targets_.try_emplace(name, premises_.tcp, own_, route, wr.wr.ud.remote_qpn).first;
  }
  return found->second.send(wr, static_cast<std::uint32_t>(message_bytes(wr)));
}

void DatagramWire::advance() noexcept {
  for (auto& [name, target] : remote_targets_) target.advance();
}

bool DatagramWire::has_unsent() const noexcept {
  return std::ranges::any_of(remote_targets_, [](const auto& one) { return one.second.has_unsent(); });
}

std::list<TcpDatagrams> DatagramWire::take_unsent() {
  std::list<TcpDatagrams> senders;
  for (auto& [name, target] : remote_targets_) {
    if (target.has_unsent()) senders.push_back(std::move(target));
  }
  remote_targets_.clear();
  return senders;
}

ExecResult DatagramWire::send_to_group(const ibv_send_wr& wr) noexcept {
  const ExecResult checked = nobody_.send_datagram(wr);
  if (checked.is_done()) return checked;
  Traffic& traffic = own_.premises->traffic;
  traffic.add(Count::kGroupPacketsSent);
  for (const std::uint32_t member : members_of(SoftAh::from(wr.wr.ud.ah).attributes.grh.dgid)) {
    // A failure at one member does not affect the others.
    const ExecResult result = targets_.get(member).send_datagram(wr);
    traffic.add(result.succeeded() ? Count::kGroupPacketsReceived : Count::kDiscarded);
  }
  if (groups_span_hosts(premises_)) groups_.send(wr, own_, static_cast<std::uint32_t>(message_bytes(wr)));
  return ExecResult::done(static_cast<std::uint32_t>(message_bytes(wr)));
}

}  // namespace rdmacomm::softdev
