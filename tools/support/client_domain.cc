#include "support/client_domain.h"

#include <utility>

namespace rdmacomm::programs {

Status give_own_domain(HcaConfig& hca, RDMADevice device) {
  auto domain = ProtectionDomain::create(std::move(device));
  if (!domain) return domain.status();
  hca.domain = std::move(*domain);
  return {};
}

Result<RDMABuffer> allocate_for(const RDMADevice& device, const ProtectionDomain& domain,
                                const BufferOptions& options) {
  return domain ? RDMABuffer::allocate(domain, options) : RDMABuffer::allocate(device, options);
}

}  // namespace rdmacomm::programs
