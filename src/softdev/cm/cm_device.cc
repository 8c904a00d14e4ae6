#include "softdev/cm/cm_device.h"

#include <endian.h>

#include <algorithm>

#include "softdev/host/gid_table.h"
#include "verbs/gid.h"

namespace rdmacomm::softdev {

std::uint64_t CmDevice::guid() const {
  return htobe64(device_guid(identity_.index));
}

int CmDevice::list_addresses() const {
  DeviceIdentity roce = identity_;
  roce.infiniband = false;
  return gid_table(roce, addresses_);
}

const std::vector<ibv_gid_entry>& CmDevice::all_addresses() const {
  (void)list_addresses();
  return addresses_;
}

std::optional<std::uint8_t> CmDevice::gid_index(const CmAddress& address) const {
  const std::vector<ibv_gid_entry>& table = all_addresses();
  std::optional<std::uint8_t> index;
  for (const ibv_gid_entry& entry : table) {
    const bool is_other_link = address.interface != 0 && entry.ndev_ifindex != address.interface &&
                               verbs::reach_of(address.gid) == verbs::Reach::kLink;
    if (!verbs::equal(entry.gid, address.gid) || is_other_link || entry.gid_index > UINT8_MAX) continue;
    if (!index || entry.gid_type == IBV_GID_TYPE_ROCE_V2) index = static_cast<std::uint8_t>(entry.gid_index);
  }
  if (!identity_.infiniband) return index;
  const bool is_port = verbs::equal(gid(address), address.gid);
  return index || is_port || is_local_gid(table, address.gid) ? std::optional<std::uint8_t>(0) : std::nullopt;
}

bool CmDevice::is_on_this_host(const CmAddress& address) const {
  return is_local_gid(all_addresses(), address.gid);
}

ibv_gid CmDevice::gid(const CmAddress& address) const {
  if (!identity_.infiniband || address.is_any()) return address.gid;
  std::vector<ibv_gid_entry> table;
  return gid_table(identity_, table) != 0 || table.empty() ? ibv_gid{} : table.front().gid;
}

std::uint16_t CmDevice::lid() const {
  return identity_.infiniband ? local_lid(identity_.index) : 0;
}

}  // namespace rdmacomm::softdev
