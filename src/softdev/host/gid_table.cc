#include "softdev/host/gid_table.h"

#include <endian.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>

#include "base/unique_fd.h"
#include "softdev/common/fnv1a.h"
#include "verbs/gid.h"

namespace rdmacomm::softdev {
namespace {

ibv_gid link_local(std::uint64_t guid) {
  ibv_gid gid{};
  gid.raw[0] = 0xfe;
  gid.raw[1] = 0x80;
  const std::uint64_t interface_id = htobe64(guid);
  std::memcpy(gid.raw + 8, &interface_id, sizeof(interface_id));
  return gid;
}

/// In the order of the GID table.
enum class AddressKind : std::uint8_t { kIpv4, kIpv6, kLinkLocal, kLoopback };

struct HostAddress {
  ibv_gid gid;
  std::uint32_t interface;
  AddressKind kind;
};

bool is_link_local(const ibv_gid& gid) {
  return IN6_IS_ADDR_LINKLOCAL(reinterpret_cast<const in6_addr*>(gid.raw));
}

AddressKind kind_of(const ibv_gid& gid, unsigned interface_flags) {
  if ((interface_flags & IFF_LOOPBACK) != 0) return AddressKind::kLoopback;
  if (is_link_local(gid)) return AddressKind::kLinkLocal;
  return verbs::is_mapped_ipv4(gid) ? AddressKind::kIpv4 : AddressKind::kIpv6;
}

/// The addresses of this host that a table has.
struct WantedAddresses {
  std::string_view interface;  ///< of this one only; empty: of all
  bool while_down = false;     ///< also those of interfaces that are down
};

/// Returns  0, or an errno value.
int read_addresses(const WantedAddresses& wanted, std::vector<HostAddress>& found) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return errno;
  std::map<std::string_view, std::uint32_t> interfaces;  // getifaddrs() lists all interfaces before the addresses
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    if ((one->ifa_flags & IFF_UP) == 0 && !wanted.while_down) continue;
    const int family = one->ifa_addr->sa_family;
    if (family == AF_PACKET)
      interfaces[one->ifa_name] =
          static_cast<std::uint32_t>(reinterpret_cast<const sockaddr_ll*>(one->ifa_addr)->sll_ifindex);
    if (family != AF_INET && family != AF_INET6) continue;
    const ibv_gid gid = verbs::gid_of(*one->ifa_addr);
    // The address of a label (eth0:1) belongs to the interface named before the colon.
    const std::string_view label(one->ifa_name);
    const std::string_view name = label.substr(0, label.find(':'));
    if (!wanted.interface.empty() && name != wanted.interface) continue;
    found.push_back({gid, interfaces[name], kind_of(gid, one->ifa_flags)});
  }
  freeifaddrs(list);
  std::ranges::stable_sort(found, {}, &HostAddress::kind);
  return 0;
}

using BootId = std::array<char, 64>;

BootId read_boot_id() {
  BootId id{};
  const UniqueFd file(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  if (file) (void)!read(file.get(), id.data(), id.size() - 1);
  return id;
}

/// The GUID of this host without its last byte, which distinguishes the host's devices and their ports. Two network namespaces of one
/// machine are two hosts.
std::uint64_t host_guid() {
  static const BootId boot_id = read_boot_id();  // read once, so that it does not change if descriptors run out later
  struct stat network {};
  (void)stat("/proc/thread-self/ns/net", &network);
  Fnv1a host;
  host.add(&boot_id, sizeof(boot_id));
  host.add(&network.st_ino, sizeof(network.st_ino));
  const std::uint64_t hash = host.value();
  // A locally administered EUI-64.
  return ((hash & ~(std::uint64_t{1} << 56)) | std::uint64_t{2} << 56) & ~std::uint64_t{0xff};
}

std::vector<ibv_gid_entry> table_of(const ibv_gid& own, std::vector<HostAddress> addresses) {
  std::vector<ibv_gid_entry> table;
  const auto add_pair = [&table](const ibv_gid& gid, std::uint32_t interface) {
    for (const std::uint32_t type : {IBV_GID_TYPE_ROCE_V1, IBV_GID_TYPE_ROCE_V2}) {
      table.push_back({gid, static_cast<std::uint32_t>(table.size()), 1, type, interface});
    }
  };
  const auto first = std::ranges::find(addresses, AddressKind::kLinkLocal, &HostAddress::kind);
  if (first == addresses.end()) {
    add_pair(own, 0);
  } else {
    std::rotate(addresses.begin(), first, first + 1);
  }
  for (const HostAddress& address : addresses) add_pair(address.gid, address.interface);
  return table;
}

int make_table(const DeviceIdentity& identity, const WantedAddresses& wanted, std::vector<ibv_gid_entry>& table) {
  const ibv_gid own = link_local(device_guid(identity.index));
  if (identity.infiniband) {
    table = {{own, 0, 1, IBV_GID_TYPE_IB, 0}};
    return 0;
  }
  std::vector<HostAddress> addresses;
  if (const int error = read_addresses(wanted, addresses); error != 0) return error;
  table = table_of(own, std::move(addresses));
  return 0;
}

}  // namespace

std::uint64_t device_guid(unsigned index) {
  return host_guid() | index;
}

std::uint16_t local_lid(unsigned index, unsigned port) {
  return static_cast<std::uint16_t>(index + 1 + (port - 1) * DeviceIdentity::kMaxDevices);
}

bool is_local_lid(std::uint16_t lid) {
  return lid >= local_lid(0) && lid <= local_lid(DeviceIdentity::kMaxDevices - 1, DeviceIdentity::kMaxPorts);
}

int gid_table(const DeviceIdentity& identity, std::vector<ibv_gid_entry>& table) {
  return make_table(identity, {.interface = identity.interface}, table);
}

int host_gids(const DeviceIdentity& identity, std::vector<ibv_gid_entry>& table) {
  return make_table(identity, {.interface = {}, .while_down = !identity.interface.empty()}, table);
}

ibv_gid_entry at_port(const ibv_gid_entry& entry, unsigned port) noexcept {
  static_assert(DeviceIdentity::kMaxDevices * DeviceIdentity::kMaxPorts <= 256, "the last byte has both numbers");
  ibv_gid_entry here = entry;
  here.port_num = port;
  if (entry.gid_type == IBV_GID_TYPE_IB)
    here.gid.raw[15] = static_cast<std::uint8_t>(entry.gid.raw[15] | (port - 1) * DeviceIdentity::kMaxDevices);
  return here;
}

bool is_local_gid(const std::vector<ibv_gid_entry>& table, const ibv_gid& gid) {
  if (verbs::is_mapped_ipv4(gid) && gid.raw[12] == IN_LOOPBACKNET) return true;
  const ibv_gid of_first = link_local(device_guid(0));
  if (std::memcmp(gid.raw, of_first.raw, sizeof(gid.raw) - 1) == 0) return true;
  return std::ranges::any_of(table, [&gid](const ibv_gid_entry& entry) { return verbs::equal(entry.gid, gid); });
}

TargetPlace place_of(const std::vector<ibv_gid_entry>& table, const std::vector<ibv_gid_entry>& host,
                     std::uint32_t sgid_index, const ibv_gid& target) {
  const bool names_its_link = is_link_local(target) && sgid_index < table.size();
  return {.on_this_host = is_local_gid(host, target), .interface = names_its_link ? table[sgid_index].ndev_ifindex : 0};
}

bool is_multicast(const ibv_gid& gid) noexcept {
  const bool is_ipv4_group = verbs::is_mapped_ipv4(gid) && gid.raw[12] >> 4 == 0xe;  // 224.0.0.0/4
  return gid.raw[0] == 0xff || is_ipv4_group;
}

}  // namespace rdmacomm::softdev
