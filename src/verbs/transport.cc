#include "verbs/transport.h"

#include "rdmacomm/qp_address.h"

namespace rdmacomm {

std::string to_text(Transport transport) {
  switch (transport) {
    case Transport::kInfiniBand: return "InfiniBand";
    case Transport::kRoce: return "RoCE";
    case Transport::kIwarp: return "iWARP";
    case Transport::kSoftware: return "software device";
    case Transport::kUnknown: break;
  }
  return "transport " + std::to_string(static_cast<unsigned>(transport));
}

bool verbs::fails_with_connection(const ibv_context& context) noexcept {
  return context.device->transport_type == IBV_TRANSPORT_IWARP;
}

}  // namespace rdmacomm
