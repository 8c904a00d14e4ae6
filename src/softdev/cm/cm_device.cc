#include "softdev/cm/cm_device.h"

#include <endian.h>

#include <algorithm>
#include <cerrno>

#include "softdev/host/gid_table.h"
#include "softdev/host/port_watch.h"
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

const std::vector<ibv_gid_entry>& CmDevice::table() const {
  (void)list_addresses();
  return addresses_;
}

std::optional<std::uint8_t> CmDevice::gid_index(const CmAddress& address) const {
  const std::vector<ibv_gid_entry>& table = this->table();
  std::optional<std::uint8_t> index;
  for (const ibv_gid_entry& entry : table) {
    const bool is_other_link = address.interface != 0 && entry.ndev_ifindex != address.interface &&
                               verbs::reach_of(address.gid) == verbs::Reach::kLink;
    if (!verbs::equal(entry.gid, address.gid) || is_other_link || entry.gid_index > UINT8_MAX) continue;
    if (!index || entry.gid_type == IBV_GID_TYPE_ROCE_V2) index = static_cast<std::uint8_t>(entry.gid_index);
  }
  if (!identity_.infiniband) return index;
  const bool is_port = verbs::equal(gid(address), address.gid);
  const bool is_other = !is_bound() && is_local_gid(table, address.gid);
  return index || is_port || is_other ? std::optional<std::uint8_t>(0) : std::nullopt;
}

std::uint8_t CmDevice::first_gid_index() const noexcept {
  return identity_.infiniband ? 0 : 1;  // the RoCE v2 entry of the first pair
}

ibv_gid CmDevice::gid(const CmAddress& address) const {
  if (!identity_.infiniband || address.is_any()) return address.gid;
  std::vector<ibv_gid_entry> table;
  return gid_table(identity_, table) != 0 || table.empty() ? ibv_gid{} : table.front().gid;
}

std::uint16_t CmDevice::lid() const {
  return identity_.infiniband ? local_lid(identity_.index) : 0;
}

bool CmDevice::is_up() const {
  HostLinks links(identity_.interface);
  return !is_bound() || links.read() != 0 || links.any_up();
}

CmDevices::CmDevices(std::vector<DeviceIdentity> identities)
    : host_(DeviceIdentity{.name = {}, .infiniband = identities.front().infiniband}) {
  for (DeviceIdentity& identity : identities) devices_.emplace_back(std::move(identity));
}

int CmDevices::list_addresses() const {
  int error = host_.list_addresses();
  for (const CmDevice& device : devices_) {
    if (error == 0) error = device.list_addresses();
  }
  return error;
}

int CmDevices::find(const CmAddress& address, Place& place) const {
  const CmDevice* any = nullptr;
  for (const CmDevice& device : devices_) {
    if (!device.is_bound()) {
      if (any == nullptr) any = &device;
    } else if (const auto index = device.gid_index(address)) {
      place = {&device, *index};
      return 0;
    }
  }
  if (any != nullptr) {
    const auto index = any->gid_index(address);
    if (!index) return EADDRNOTAVAIL;
    place = {any, *index};
    return 0;
  }
  if (verbs::reach_of(address.gid) == verbs::Reach::kHost) {
    const auto first_up = std::ranges::find_if(devices_, &CmDevice::is_up);
    const CmDevice& device = first_up == devices_.end() ? devices_.front() : *first_up;
    place = {&device, device.first_gid_index()};
    return 0;
  }
  return is_on_this_host(address) ? ENODEV : EADDRNOTAVAIL;
}

bool CmDevices::is_on_this_host(const CmAddress& address) const {
  return is_local_gid(host_.table(), address.gid);
}

ibv_gid CmDevices::gid(const CmAddress& address) const {
  Place place;
  const bool is_found = is_infiniband() && !address.is_any() && find(address, place) == 0;
  return is_found ? place.device->gid(address) : devices_.front().gid(address);
}

std::uint16_t CmDevices::lid_of(const ibv_gid& gid) const {
  CmAddress address;
  address.gid = gid;
  const auto found =
      std::ranges::find_if(devices_, [&](const CmDevice& device) { return verbs::equal(device.gid(address), gid); });
  return found == devices_.end() ? devices_.front().lid() : found->lid();
}

}  // namespace rdmacomm::softdev
