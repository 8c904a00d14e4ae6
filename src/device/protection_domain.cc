#include "device/protection_domain_core.h"
#include "rdmacomm/device.h"
#include "verbs/call.h"

namespace rdmacomm {
namespace {

Error no_domain(const Error& cause, const DeviceCore& device) {
  const int most = device.limits().max_protection_domains;
  if (most <= 0) return cause;
  return make_error(cause.code, cause.context + ": the device allows " + std::to_string(most) +
                                    " protection domains for all processes together; serve fewer peers at a time, or "
                                    "leave HcaConfig::domain empty");
}

}  // namespace

Result<std::shared_ptr<ProtectionDomainCore>> ProtectionDomainCore::create(std::shared_ptr<DeviceCore> device) {
  const verbs::Api& api = device->api();
  const auto pd =
      verbs::from_null(api.alloc_pd(device->context()), "allocate one more protection domain on " + device->to_text());
  if (!pd) return no_domain(pd.error(), *device);
  return std::shared_ptr<ProtectionDomainCore>(new ProtectionDomainCore(std::move(device), verbs::PdHandle(api, *pd)));
}

Result<ProtectionDomain> ProtectionDomain::create(const RDMADevice& device) {
  if (!device)
    return make_error(Errc::kInvalidArgument,
                      "a protection domain needs an open device; the given RDMADevice is empty");
  auto core = ProtectionDomainCore::create(device.core());
  if (!core) return std::move(core).error();
  return ProtectionDomain(std::move(core).value());
}

RDMADevice ProtectionDomain::device() const {
  return RDMADevice(object().device());
}

ibv_pd* ProtectionDomain::native_handle() const {
  return object().pd();
}

}  // namespace rdmacomm
