#include "softdev/preload/files/view_entries.h"

#include <dirent.h>
#include <endian.h>
#include <net/if.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "softdev/common/fnv1a.h"
#include "softdev/host/gid_table.h"
#include "softdev/host/port_watch.h"
#include "softdev/preload/files/view_counters.h"
#include "softdev/preload/files/view_path.h"

namespace rdmacomm::softdev::preload {
namespace {

using Kind = ViewEntry::Kind;

// Source: include/rdma/ib_verbs.h and drivers/infiniband/core/uverbs_main.c of Linux: the numbers of the nodes.
constexpr unsigned kVerbsMajor = 231;
constexpr unsigned kFirstVerbsMinor = 192;
constexpr unsigned kMiscMajor = 10;
/// The kernel gives misc devices minor numbers from 63 downwards, and beyond 255. None has this one.
constexpr unsigned kConnectionManagerMinor = (1U << 20) - 1;
constexpr std::string_view kVerbsPrefix = "uverbs";

/// Collects entries.
class Entries {
 public:
  explicit Entries(std::vector<ViewEntry>& to) : to_(to) {}
  void folder(std::string path) { to_.push_back({.kind = Kind::kFolder, .path = std::move(path), .text = {}}); }
  void file(std::string path, std::string text) {
    to_.push_back({.kind = Kind::kFile, .path = std::move(path), .text = std::move(text) + "\n"});
  }
  void link(std::string path, std::string target, bool is_system = false) {
    to_.push_back({.kind = Kind::kLink, .path = std::move(path), .text = std::move(target), .is_system = is_system});
  }
  void node(std::string path, dev_t device) {
    to_.push_back({.kind = Kind::kNode, .path = std::move(path), .text = {}, .device = device});
  }

 private:
  std::vector<ViewEntry>& to_;
};

template <typename... Values>
std::string print(const char* format, Values... values) {
  char text[128];
  std::snprintf(text, sizeof(text), format, values...);
  return text;
}

std::string text_of(dev_t device) {
  return print("%u:%u", major(device), minor(device));
}

std::string in_groups(const unsigned char* bytes, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; i += 2) text += print(i == 0 ? "%02x%02x" : ":%02x%02x", bytes[i], bytes[i + 1]);
  return text;
}

std::string guid_text(std::uint64_t big_endian) {
  unsigned char bytes[sizeof(big_endian)];
  std::memcpy(bytes, &big_endian, sizeof(bytes));
  return in_groups(bytes, sizeof(bytes));
}

/// The names in a folder; none if it does not exist.
std::vector<std::string> names_in(std::string_view folder) {
  std::vector<std::string> names;
  DIR* const open = opendir(std::string(folder).c_str());
  if (open == nullptr) return names;
  while (const dirent* const entry = readdir(open)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  closedir(open);
  std::ranges::sort(names);
  return names;
}

std::optional<unsigned> number_of(std::string_view name) {
  if (!name.starts_with(kVerbsPrefix)) return std::nullopt;
  name.remove_prefix(kVerbsPrefix.size());
  unsigned number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc{} || end != name.data() + name.size()) return std::nullopt;
  return number;
}

dev_t verbs_device(const SystemEntries& system, unsigned index) {
  return makedev(kVerbsMajor, kFirstVerbsMinor + system.first_number + index);
}

std::string interface_name(std::uint32_t index) {
  char name[IF_NAMESIZE] = {};
  return index == 0 || if_indextoname(index, name) == nullptr ? "" : name;
}

/// Like "200 Gb/sec (4X HDR)". Source: rate_show in drivers/infiniband/core/sysfs.c of Linux, for the values that
/// the port reports.
std::string rate_text(const ibv_port_attr& port) {
  struct Speed {
    std::uint8_t value;
    double gigabits;
    const char* name;
  };
  static constexpr Speed kSpeeds[] = {{1, 2.5, " SDR"}, {2, 5, " DDR"},   {4, 10, " QDR"},  {8, 10, " FDR10"},
                                      {16, 14, " FDR"}, {32, 25, " EDR"}, {64, 50, " HDR"}, {128, 100, " NDR"}};
  static constexpr std::pair<std::uint8_t, int> kWidths[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
  const auto* const speed = std::ranges::find(kSpeeds, port.active_speed, &Speed::value);
  const auto* const width = std::ranges::find(kWidths, port.active_width, &std::pair<std::uint8_t, int>::first);
  if (speed == std::end(kSpeeds) || width == std::end(kWidths)) return {};
  return print("%g Gb/sec (%dX%s)", speed->gigabits * width->second, width->second, speed->name);
}

std::string state_text(ibv_port_state state) {
  static constexpr const char* kNames[] = {"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"};
  const auto number = static_cast<std::size_t>(state);
  return number < std::size(kNames) ? print("%zu: %s", number, kNames[number]) : print("%zu: ", number);
}

std::string physical_state_text(std::uint8_t state) {
  static constexpr const char* kNames[] = {"",       "Sleep",  "Polling", "Disabled", "PortConfigurationTraining",
                                           "LinkUp", "LinkErr"};
  return print("%u: %s", unsigned{state}, state < std::size(kNames) ? kNames[state] : "");
}

/// The CPUs of the system as a mask, like "3" or "ff,ffffffff", from a list such as "0-3,8". Empty: not a list.
std::string mask_of(std::string_view list) {
  constexpr unsigned kMaxCpus = 1 << 16;
  std::vector<std::uint32_t> words(1);
  const char* at = list.data();
  const char* const end = list.data() + list.size();
  while (at != end) {
    unsigned first = 0;
    auto parsed = std::from_chars(at, end, first);
    unsigned last = first;
    if (parsed.ec == std::errc{} && parsed.ptr != end && *parsed.ptr == '-') {
      parsed = std::from_chars(parsed.ptr + 1, end, last);
    }
    if (parsed.ec != std::errc{} || last < first || last >= kMaxCpus) return {};
    for (unsigned cpu = first; cpu <= last; ++cpu) {
      if (cpu / 32 >= words.size()) words.resize(cpu / 32 + 1);
      words[cpu / 32] |= std::uint32_t{1} << cpu % 32;
    }
    at = parsed.ptr;
    if (at != end && *at++ != ',') return {};
  }
  std::string text;
  for (std::size_t i = words.size(); i-- > 0;) text += print(text.empty() ? "%x" : ",%08x", words[i]);
  return text;
}

/// The attributes that a PCI device has for programs that want threads and memory close to it. soft0 is close to all
/// CPUs.
void add_location(const std::string& device, const std::set<std::string>& interfaces, Entries& to) {
  to.folder(device);
  to.file(device + "/numa_node", "-1");
  std::string cpus;
  std::getline(std::ifstream("/sys/devices/system/cpu/online"), cpus);
  if (const std::string mask = mask_of(cpus); !cpus.empty() && !mask.empty()) {
    to.file(device + "/local_cpulist", cpus);
    to.file(device + "/local_cpus", mask);
  }
  if (interfaces.empty()) return;
  to.folder(device + "/net");
  for (const std::string& name : interfaces) to.link(device + "/net/" + name, "/sys/class/net/" + name);
}

/// The GID table. Returns the names of its interfaces.
std::set<std::string> add_gids(const std::string& port, const std::vector<ibv_gid_entry>& gids, Entries& to) {
  std::set<std::string> interfaces;
  for (const char* const folder : {"/gids", "/gid_attrs", "/gid_attrs/ndevs", "/gid_attrs/types"}) {
    to.folder(port + folder);
  }
  for (const ibv_gid_entry& entry : gids) {
    const std::string index = std::to_string(entry.gid_index);
    to.file(port + "/gids/" + index, in_groups(entry.gid.raw, sizeof(entry.gid.raw)));
    to.file(port + "/gid_attrs/types/" + index, entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2" : "IB/RoCE v1");
    // In the kernel, too, the file cannot be read if the entry has no interface.
    const std::string interface = interface_name(entry.ndev_ifindex);
    if (interface.empty()) continue;
    to.file(port + "/gid_attrs/ndevs/" + index, interface);
    interfaces.insert(interface);
  }
  return interfaces;
}

void add_port(const std::string& path, const ibv_port_attr& port, Entries& to) {
  to.folder(path);
  to.file(path + "/state", state_text(port.state));
  to.file(path + "/phys_state", physical_state_text(port.phys_state));
  to.file(path + "/rate", rate_text(port));
  to.file(path + "/link_layer", port.link_layer == IBV_LINK_LAYER_INFINIBAND ? "InfiniBand" : "Ethernet");
  to.file(path + "/lid", print("0x%x", unsigned{port.lid}));
  to.file(path + "/lid_mask_count", print("%u", unsigned{port.lmc}));
  to.file(path + "/sm_lid", print("0x%x", unsigned{port.sm_lid}));
  to.file(path + "/sm_sl", print("%u", unsigned{port.sm_sl}));
  to.file(path + "/cap_mask", print("0x%08x", port.port_cap_flags));
  to.folder(path + "/pkeys");
  to.file(path + "/pkeys/0", "0xffff");
  // The numbers are written when a program opens the file, see PlacedPath::refresh_counter().
  to.folder(path + "/counters");
  for (const std::string_view name : port_counters()) to.file(path + "/counters/" + std::string(name), "0");
  to.folder(path + "/hw_counters");
  for (const std::string_view name : hardware_counters()) to.file(path + "/hw_counters/" + std::string(name), "0");
  to.file(path + "/hw_counters/lifespan", "10");
}

/// Returns  0, or an errno value.
int add_device(const DeviceIdentity& identity, const SystemEntries& system, Entries& to) {
  ibv_device_attr attributes{};
  std::vector<ibv_gid_entry> gids;
  describe_device(identity, attributes);
  if (const int error = gid_table(identity, gids); error != 0) return error;

  const std::string path = std::string(kDevices) + "/" + identity.name;
  to.folder(path);
  to.file(path + "/node_type", "1: CA");
  to.file(path + "/node_guid", guid_text(attributes.node_guid));
  to.file(path + "/sys_image_guid", guid_text(attributes.sys_image_guid));
  to.file(path + "/node_desc", identity.name);
  to.file(path + "/fw_ver", attributes.fw_ver);
  to.file(path + "/hw_rev", print("%x", attributes.hw_ver));
  to.file(path + "/hca_type", "soft0");
  to.folder(path + "/ports");
  std::set<std::string> interfaces;
  const bool has_interface = !identity.interface.empty() && if_nametoindex(identity.interface.c_str()) != 0;
  for (unsigned number = 1; number <= identity.ports; ++number) {
    ibv_port_attr port{};
    if (const int error = describe_port(identity, number, port); error != 0) return error;
    const std::string port_path = path + "/ports/" + std::to_string(number);
    add_port(port_path, port, to);
    std::vector<ibv_gid_entry> here;
    for (const ibv_gid_entry& entry : gids) here.push_back(at_port(entry, number));
    interfaces = add_gids(port_path, here, to);
  }
  if (has_interface) interfaces.insert(identity.interface);
  add_location(path + "/device", interfaces, to);

  const std::string name = verbs_name(system, identity.index);
  const std::string verbs = std::string(kVerbsDevices) + "/" + name;
  to.folder(verbs);
  to.file(verbs + "/abi_version", "1");
  to.file(verbs + "/ibdev", identity.name);
  to.file(verbs + "/dev", text_of(verbs_device(system, identity.index)));
  to.link(verbs + "/device", "../../infiniband/" + identity.name + "/device");
  to.node(std::string(kDeviceNodes) + "/" + name, verbs_device(system, identity.index));
  return 0;
}

void add_connection_manager(Entries& to) {
  const std::string path(kConnectionManager);
  const dev_t device = connection_manager_device();
  to.folder(path);
  to.file(path + "/abi_version", "4");
  to.file(path + "/dev", text_of(device));
  to.node(std::string(kDeviceNodes) + "/rdma_cm", device);
}

}  // namespace

SystemEntries read_system_entries() {
  SystemEntries system;
  for (const std::string_view folder : {kDeviceNodes, kDevices, kVerbsDevices, kManagementDevices}) {
    for (const std::string& name : names_in(folder)) {
      system.paths.push_back(std::string(folder) + "/" + name);
      if (const auto number = number_of(name); number && *number < (1U << 16)) {
        system.first_number = std::max(system.first_number, *number + 1);
      }
    }
  }
  return system;
}

std::string verbs_name(const SystemEntries& system, unsigned index) {
  return std::string(kVerbsPrefix) + std::to_string(system.first_number + index);
}

dev_t connection_manager_device() noexcept {
  return makedev(kMiscMajor, kConnectionManagerMinor);
}

int describe_view(const std::vector<DeviceIdentity>& devices, const SystemEntries& system, bool has_connection_manager,
                  std::vector<ViewEntry>& entries) {
  std::vector<ViewEntry> described;
  Entries to(described);
  for (const std::string_view folder : {kDeviceNodes, kDevices, kVerbsDevices, kManagementDevices}) {
    to.folder(std::string(folder));
  }
  for (const DeviceIdentity& identity : devices) {
    if (const int error = add_device(identity, system, to); error != 0) return error;
  }
  if (has_connection_manager) add_connection_manager(to);
  // Source: drivers/infiniband/core/uverbs.h and include/uapi/rdma/ib_user_mad.h of Linux.
  to.file(std::string(kVerbsDevices) + "/abi_version", "6");
  to.file(std::string(kManagementDevices) + "/abi_version", "5");

  std::set<std::string> own;
  for (const ViewEntry& entry : described) own.insert(entry.path);
  for (const std::string& path : system.paths) {
    if (!own.contains(path)) to.link(path, path, true);
  }
  entries = std::move(described);
  return 0;
}

std::uint64_t network_state(std::span<const DeviceIdentity> devices) {
  Fnv1a hash;
  hash.add(device_guid(0));
  HostLinks links;
  if (const int error = links.read(); error != 0) hash.add(static_cast<std::uint64_t>(error));
  for (const int interface : links.up()) hash.add(static_cast<std::uint64_t>(interface));
  std::vector<ibv_gid_entry> gids;
  if (const int error = gid_table({}, gids); error != 0) hash.add(static_cast<std::uint64_t>(error));
  for (const ibv_gid_entry& entry : gids) {
    hash.add(entry.gid.raw, sizeof(entry.gid.raw));
    hash.add(entry.ndev_ifindex);
  }
  for (const DeviceIdentity& device : devices) {
    if (!device.interface.empty()) hash.add(std::uint64_t{if_nametoindex(device.interface.c_str())});
  }
  return hash.value();
}

std::uint64_t hash_of(const std::vector<ViewEntry>& entries) {
  Fnv1a hash;
  for (const ViewEntry& entry : entries) {
    hash.add(static_cast<std::uint64_t>(entry.kind));
    hash.add(entry.path);
    hash.add(entry.text);
    hash.add(std::uint64_t{entry.device});
  }
  return hash.value();
}

}  // namespace rdmacomm::softdev::preload
