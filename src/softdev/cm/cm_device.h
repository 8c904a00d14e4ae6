// cm_device.h - the soft devices as connection management sees them.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "softdev/cm/cm_address.h"
#include "softdev/host/soft_device.h"

namespace rdmacomm::softdev {

/// The hop limit of all paths.
inline constexpr std::uint8_t kCmHopLimit = 64;

/// One device: its GIDs, and the entry of its table that an address belongs to. While the system cannot list the
/// addresses of this host (all files of the process are in use), the last list counts.
/// Threads: one at a time.
class CmDevice {
 public:
  explicit CmDevice(DeviceIdentity identity) : identity_(std::move(identity)) {}

  /// Lists the addresses of the device, so that a list is there if the system cannot give one later.
  /// Returns  0, or an errno value as gid_table().
  [[nodiscard]] int list_addresses() const;

  /// GUID of the device, as in __be64 node_guid.
  [[nodiscard]] std::uint64_t guid() const;
  /// The entry of the GID table from which `address` sends; no value: it is no address of the device. RoCE v2 is
  /// preferred. An InfiniBand device has one entry for all addresses. Address handles have no room for an index beyond
  /// 255, so such an entry does not count.
  [[nodiscard]] std::optional<std::uint8_t> gid_index(const CmAddress& address) const;
  /// The entry that an identifier has whose address is on this host and belongs to no device: the first one.
  [[nodiscard]] std::uint8_t first_gid_index() const noexcept;
  /// The GID of an address of the device: the address or, on InfiniBand, that of the port.
  [[nodiscard]] ibv_gid gid(const CmAddress& address) const;
  [[nodiscard]] bool is_infiniband() const noexcept { return identity_.infiniband; }
  [[nodiscard]] std::uint16_t lid() const;
  /// True if the device belongs to a network interface.
  [[nodiscard]] bool is_bound() const noexcept { return !identity_.interface.empty(); }
  /// False while that interface is down. Also true if the device belongs to none, or the system does not know.
  [[nodiscard]] bool is_up() const;
  /// The table as a RoCE device has it. Valid until the next call of a function of this object.
  [[nodiscard]] const std::vector<ibv_gid_entry>& table() const;

 private:
  const DeviceIdentity identity_;
  mutable std::vector<ibv_gid_entry> addresses_;
};

/// All devices of the process, at least one. If they belong to network interfaces, an identifier uses the device whose
/// interface has its address. If not, all identifiers use the first device.
/// Threads: one at a time.
class CmDevices {
 public:
  explicit CmDevices(std::vector<DeviceIdentity> identities);

  /// As CmDevice::list_addresses(), for all devices.
  [[nodiscard]] int list_addresses() const;

  /// A device, and the entry of its GID table.
  struct Place {
    const CmDevice* device = nullptr;
    std::uint8_t gid_index = 0;
  };
  /// Finds the device with a local address. A loopback address that no device has belongs to the first device whose port
  /// is up, as in the kernel (cma_bind_loopback in drivers/infiniband/core/cma.c).
  /// Returns  0, or an errno value as the kernel. EADDRNOTAVAIL: the address is not on this host. ENODEV: its interface
  ///          has no device.
  [[nodiscard]] int find(const CmAddress& address, Place& place) const;
  [[nodiscard]] bool is_on_this_host(const CmAddress& address) const;
  /// The GID of any address: on InfiniBand, that of the device with this address.
  [[nodiscard]] ibv_gid gid(const CmAddress& address) const;
  /// The LID of the port with this GID; 0 unless the devices are InfiniBand.
  [[nodiscard]] std::uint16_t lid_of(const ibv_gid& gid) const;
  [[nodiscard]] bool is_infiniband() const noexcept { return devices_.front().is_infiniband(); }

 private:
  std::deque<CmDevice> devices_;
  CmDevice host_;  ///< has all addresses
};

}  // namespace rdmacomm::softdev
