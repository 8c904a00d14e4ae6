// protection_domain_core.h - which memory can be reached by which queue pairs.
// Layer: device. Uses: base, verbs.   Why and when: docs/adr/0016-protection-domains.md
#pragma once

#include <memory>

#include "device/device_core.h"
#include "rdmacomm/result.h"
#include "verbs/handles.h"

namespace rdmacomm {

/// What a ProtectionDomain is a handle of. A resource: neither copyable nor movable. Keeps its device.
/// Threads: all functions from any.
class ProtectionDomainCore {
 public:
  /// Returns  what the operating system said, mostly std::errc::not_enough_memory: devices have a limited number of
  ///          domains, as a rule many thousands (DeviceLimits::max_protection_domains); the context names it
  [[nodiscard]] static Result<std::shared_ptr<ProtectionDomainCore>> create(std::shared_ptr<DeviceCore> device);
  ProtectionDomainCore(const ProtectionDomainCore&) = delete;
  ProtectionDomainCore& operator=(const ProtectionDomainCore&) = delete;
  ~ProtectionDomainCore() = default;

  [[nodiscard]] const std::shared_ptr<DeviceCore>& device() const noexcept { return device_; }
  [[nodiscard]] ibv_pd* pd() const noexcept { return pd_.get(); }

 private:
  ProtectionDomainCore(std::shared_ptr<DeviceCore> device, verbs::PdHandle pd)
      : device_(std::move(device)), pd_(std::move(pd)) {}

  const std::shared_ptr<DeviceCore> device_;
  verbs::PdHandle pd_;
};

}  // namespace rdmacomm
