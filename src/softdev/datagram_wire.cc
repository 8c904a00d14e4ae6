#include "softdev/datagram_wire.h"

#include "softdev/multicast.h"
#include "softdev/requests.h"
#include "softdev/soft_ah.h"

namespace rdmacomm::softdev {

ExecResult DatagramWire::exec(const ibv_send_wr& wr) noexcept {
  const bool to_all = wr.wr.ud.remote_qpn == kMulticastQpn && SoftAh::from(wr.wr.ud.ah).is_multicast();
  if (to_all) return send_to_group(wr);
  return SoftAh::from(wr.wr.ud.ah).route.by_memory ? targets_.get(wr.wr.ud.remote_qpn).send_datagram(wr)
                                                   : send_by_tcp(wr);
}

ExecResult DatagramWire::send_by_tcp(const ibv_send_wr& wr) noexcept {
  const ExecResult checked = nobody_.send_datagram(wr);
  if (checked.is_done()) return checked;
  const Route& route = SoftAh::from(wr.wr.ud.ah).route;
  const RemoteTarget name{std::to_array(route.target.raw), wr.wr.ud.remote_qpn};
  auto found = remote_targets_.find(name);
  if (found == remote_targets_.end()) {
    if (remote_targets_.size() >= kMostRemoteTargets) remote_targets_.clear();
    found = remote_targets_.try_emplace(name, own_, route, wr.wr.ud.remote_qpn).first;
  }
  return found->second.send(wr, static_cast<std::uint32_t>(message_bytes(wr)));
}

void DatagramWire::advance() noexcept {
  for (auto& [name, target] : remote_targets_) target.advance();
}

ExecResult DatagramWire::send_to_group(const ibv_send_wr& wr) noexcept {
  const ExecResult checked = nobody_.send_datagram(wr);
  if (checked.is_done()) return checked;
  for (const std::uint32_t member : members_of(SoftAh::from(wr.wr.ud.ah).attributes.grh.dgid)) {
    (void)targets_.get(member).send_datagram(wr);  // what one member does not get, the others do
  }
  return checked;
}

}  // namespace rdmacomm::softdev
