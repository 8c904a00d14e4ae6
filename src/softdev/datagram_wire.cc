#include "softdev/datagram_wire.h"

#include "softdev/multicast.h"
#include "softdev/soft_ah.h"

namespace rdmacomm::softdev {

ExecResult DatagramWire::exec(const ibv_send_wr& wr) noexcept {
  const bool to_all = wr.wr.ud.remote_qpn == kMulticastQpn && SoftAh::from(wr.wr.ud.ah).is_multicast();
  return to_all ? send_to_group(wr) : targets_.get(wr.wr.ud.remote_qpn).send_datagram(wr);
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
