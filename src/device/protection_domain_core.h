// protection_domain_core.h - limits which queue pairs can reach which memory.
// Layer: device. Uses: base, verbs.   When to use it, and why: docs/adr/0016-protection-domains.md
#pragma once

#include <memory>

#include "device/device_core.h"
#include "rdmacomm/result.h"
#include "verbs/handles.h"

namespace rdmacomm {

/// The object behind a ProtectionDomain. A resource: neither copyable nor movable. Keeps its device open.
/// Threads: all functions from any.
class ProtectionDomainCore {
 public:
  /// Returns  the system's error, mostly std::errc::not_enough_memory: a device has a limited number of domains,
  ///          typically many thousands (DeviceLimits::max_protection_domains); the context names the limit
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
