// client_domain.h - prevents a server's clients from accessing each other's memory.
#pragma once

#include "rdmacomm/buffer.h"
#include "rdmacomm/config.h"
#include "rdmacomm/device.h"
#include "rdmacomm/result.h"

namespace rdmacomm::programs {

/// Puts a client's endpoint into a protection domain of its own, in lazy_config_hca(). The client can access memory
/// that is registered in hca.domain, and no other memory of the server, even if it knows addresses and keys. Reason:
/// docs/adr/0016.
/// Returns  as ProtectionDomain::create
[[nodiscard]] Status give_own_domain(HcaConfig& hca, RDMADevice device);

/// Allocates memory for an endpoint: in its domain, or on the device if it has none.
/// domain   HcaConfig::domain of the endpoint; nullptr: the device's own
/// Returns  as RDMABuffer::allocate
[[nodiscard]] Result<RDMABuffer> allocate_for(const RDMADevice& device, const ProtectionDomain& domain,
                                              const BufferOptions& options);

}  // namespace rdmacomm::programs
