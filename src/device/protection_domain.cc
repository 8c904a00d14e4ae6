#include "rdmacomm/device/protection_domain.h"

#include "rdmacomm/verbs/call.h"

namespace rdmacomm {
namespace {

Error no_domain(const Error& cause, const RDMADevice& device) {
  const int most = device.limits().max_protection_domains;
  if (most <= 0) return cause;
  return make_error(cause.code, cause.context + ": all processes together can have " + std::to_string(most) +
                                    " on it; serve fewer peers at a time, or leave HcaConfig::domain empty");
}

}  // namespace

Result<std::shared_ptr<ProtectionDomain>> ProtectionDomain::create(std::shared_ptr<RDMADevice> device) {
  const verbs::Api& api = device->api();
  const auto pd =
      verbs::from_null(api.alloc_pd(device->context()), "allocate one more protection domain on " + device->to_text());
  if (!pd) return no_domain(pd.error(), *device);
  return std::shared_ptr<ProtectionDomain>(new ProtectionDomain(std::move(device), verbs::PdHandle(api, *pd)));
}

}  // namespace rdmacomm
