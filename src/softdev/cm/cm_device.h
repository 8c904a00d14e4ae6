// cm_device.h - the soft device as connection management sees it.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "softdev/cm/cm_address.h"
#include "softdev/host/soft_device.h"

namespace rdmacomm::softdev {

/// The hop limit of all paths.
inline constexpr std::uint8_t kCmHopLimit = 64;

/// How identifiers reach addresses: the device, its GIDs, and the entry of its table that an address belongs to. While
/// the system cannot list the addresses of this host (all files of the process are in use), the last list counts.
/// Threads: one at a time.
class CmDevice {
 public:
  explicit CmDevice(DeviceIdentity identity) : identity_(std::move(identity)) {}

  /// Lists the addresses of this host, so that a list is there if the system cannot give one later.
  /// Returns  0, or an errno value as gid_table().
  [[nodiscard]] int list_addresses() const;

  /// GUID of the device, as in __be64 node_guid.
  [[nodiscard]] std::uint64_t guid() const;
  /// The entry of the GID table from which `address` sends; no value: it is no address of this host. RoCE v2 is
  /// preferred. An InfiniBand device has one entry for all addresses. Address handles have no room for an index beyond
  /// 255, so such an entry does not count.
  [[nodiscard]] std::optional<std::uint8_t> gid_index(const CmAddress& address) const;
  [[nodiscard]] bool is_on_this_host(const CmAddress& address) const;
  /// The GID of an address: of this host or, on InfiniBand, of the port.
  [[nodiscard]] ibv_gid gid(const CmAddress& address) const;
  [[nodiscard]] bool is_infiniband() const noexcept { return identity_.infiniband; }
  [[nodiscard]] std::uint16_t lid() const;

 private:
  /// The table as a RoCE device has it: all addresses of this host.
  [[nodiscard]] const std::vector<ibv_gid_entry>& all_addresses() const;

  const DeviceIdentity identity_;
  mutable std::vector<ibv_gid_entry> addresses_;
};

}  // namespace rdmacomm::softdev
