// protection_domain.h - which memory can be reached by which queue pairs.
// Layer: device. Uses: base, verbs.   Why and when: docs/adr/0016-protection-domains.md
#pragma once

#include <memory>

#include "rdmacomm/base/result.h"
#include "rdmacomm/device/rdma_device.h"
#include "rdmacomm/verbs/handles.h"

namespace rdmacomm {

/// Memory and queue pairs of one domain reach each other, and nothing else: a peer that knows the address and the rkey of memory
/// in another domain gets kRemoteAccess, and a slice of another domain's buffer fails with kLocalProtection. Each RDMADevice
/// has one domain, which everything is in that names no other. A server makes one for each client that must not reach the
/// others' memory, and gives it to HcaConfig::domain and to the buffers for that client.
///
/// A resource: neither copyable nor movable. Queue pairs, buffers and pools that are made in it keep it, and it keeps its device.
/// Threads: all functions from any.
class ProtectionDomain {
 public:
  /// Returns  what the operating system said, mostly std::errc::not_enough_memory: devices have a limited number of domains, as
  ///          a rule many thousands (DeviceLimits::max_protection_domains); the context names it
  [[nodiscard]] static Result<std::shared_ptr<ProtectionDomain>> create(std::shared_ptr<RDMADevice> device);
  ProtectionDomain(const ProtectionDomain&) = delete;
  ProtectionDomain& operator=(const ProtectionDomain&) = delete;
  ~ProtectionDomain() = default;

  [[nodiscard]] const std::shared_ptr<RDMADevice>& device() const noexcept { return device_; }
  [[nodiscard]] ibv_pd* pd() const noexcept { return pd_.get(); }

 private:
  ProtectionDomain(std::shared_ptr<RDMADevice> device, verbs::PdHandle pd)
      : device_(std::move(device)), pd_(std::move(pd)) {}

  const std::shared_ptr<RDMADevice> device_;
  verbs::PdHandle pd_;
};

}  // namespace rdmacomm
