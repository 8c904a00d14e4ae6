#include "softdev/datagram_wire.h"

#include "softdev/multicast.h"
#include "softdev/soft_ah.h"

namespace rdmacomm::softdev {

ExecResult DatagramWire::exec(const ibv_send_wr& wr) noexcept {
  const bool to_all = wr.wr.ud.remote_qpn == kMulticastQpn && SoftAh::from(wr.wr.ud.ah).is_multicast();
  return to_all ? send_to_group(wr) : send_to(wr.wr.ud.remote_qpn, wr);
}

ExecResult DatagramWire::send_to(std::uint32_t qpn, const ibv_send_wr& wr) noexcept {
  auto found = targets_.find(qpn);
  if (found == targets_.end()) {
    if (targets_.size() >= kMostTargets) targets_.clear();
    found = targets_.emplace(qpn, std::make_unique<LocalWire>(own_, qpn)).first;
    found->second->attach();
  }
  const ExecResult result = found->second->send_datagram(wr);
  // Gone, or not there yet: the next datagram looks for it again.
  if (result.outcome() == ExecOutcome::kUnreachable || result.outcome() == ExecOutcome::kLost) targets_.erase(found);
  return result;
}

ExecResult DatagramWire::send_to_group(const ibv_send_wr& wr) noexcept {
  const ExecResult checked = nobody_.send_datagram(wr);
  if (checked.is_done()) return checked;
  for (const std::uint32_t member : members_of(SoftAh::from(wr.wr.ud.ah).attributes.grh.dgid)) {
    (void)send_to(member, wr);  // what one member does not get, the others do
  }
  return checked;
}

}  // namespace rdmacomm::softdev
