#include "rdmacomm/device/protection_domain.h"

#include "rdmacomm/verbs/call.h"

namespace rdmacomm {

Result<std::shared_ptr<ProtectionDomain>> ProtectionDomain::create(std::shared_ptr<RDMADevice> device) {
  const verbs::Api& api = device->api();
  const auto pd =
      verbs::from_null(api.alloc_pd(device->context()), "allocate one more protection domain on " + device->to_text());
  if (!pd) return pd.error();
  return std::shared_ptr<ProtectionDomain>(new ProtectionDomain(std::move(device), verbs::PdHandle(api, *pd)));
}

}  // namespace rdmacomm
