#include "softdev/tcp/datagram_format.h"

#include "softdev/common/device_limits.h"
#include "softdev/memory/requests.h"

namespace rdmacomm::softdev {

TcpDatagramAddress datagram_address_of(const SoftAh& ah) noexcept {
  TcpDatagramAddress address;
  address.source = ah.source;
  address.target = ah.attributes.grh.dgid;
  address.flow_label = ah.attributes.grh.flow_label;
  address.source_lid = ah.source_lid;
  address.service_level = ah.attributes.sl;
  address.traffic_class = ah.attributes.grh.traffic_class;
  address.hop_limit = ah.attributes.grh.hop_limit;
  address.is_global = ah.attributes.is_global;
  address.is_routable = ah.is_routable ? 1 : 0;
  return address;
}

SoftAh handle_of(const TcpDatagramAddress& address) noexcept {
  SoftAh ah{};
  ah.source = address.source;
  ah.source_lid = address.source_lid;
  ah.is_routable = address.is_routable != 0;
  ah.attributes.is_global = address.is_global;
  ah.attributes.sl = address.service_level;
  ah.attributes.grh = {address.target, address.flow_label, 0, address.hop_limit, address.traffic_class};
  return ah;
}

bool is_datagram(const TcpRequest& request) noexcept {
  return is_remote_opcode(request.opcode) && is_send(static_cast<ibv_wr_opcode>(request.opcode)) &&
         request.length <= kPortMtuBytes;
}

}  // namespace rdmacomm::softdev
