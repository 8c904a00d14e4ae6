// Ranks the GIDs of a port for use towards a peer.
#include <algorithm>
#include <cstring>
#include <set>
#include <span>
#include <tuple>

#include "device/addressing.h"
#include "verbs/describe.h"
#include "verbs/gid.h"

namespace rdmacomm {
namespace {

using verbs::Reach;

constexpr std::size_t kMacBytes = 6;
constexpr std::size_t kGuidBytes = 8;
constexpr std::size_t kIpoibAddressBytes = 20;  // flags and QPN, then the port's GID. Source: RFC 4391, 9.1.1

const NetworkInterface* find_interface(const AddressingInput& input, unsigned index) {
  const auto found = std::ranges::find(input.interfaces, index, &NetworkInterface::index);
  return found == input.interfaces.end() ? nullptr : &*found;
}

/// Whether `gid` is the link-local address that the kernel derives from a MAC address (modified EUI-64, RFC 4291,
/// appendix A). The interface itself need not have that address. The middle two bytes differ on some devices.
bool made_from_mac(const Gid& gid, const NetworkInterface& interface) {
  const auto& mac = interface.hardware_address;
  if (mac.size() != kMacBytes) return false;
  const std::uint8_t* id = gid.raw.data() + 8;
  return (id[0] & 0xfd) == (mac[0] & 0xfd) && std::equal(id + 1, id + 3, mac.begin() + 1) &&
         std::equal(id + 5, id + 8, mac.begin() + 3);
}

/// iWARP devices have one GID: the MAC address, followed by zeroes.
bool starts_with_mac(const Gid& gid, const NetworkInterface& interface) {
  const auto& mac = interface.hardware_address;
  return mac.size() == kMacBytes && std::equal(mac.begin(), mac.end(), gid.raw.begin());
}

bool is_ipoib_of(const Gid& gid, const NetworkInterface& interface) {
  const auto& address = interface.hardware_address;
  return address.size() == kIpoibAddressBytes &&
         std::equal(address.end() - kGuidBytes, address.end(), gid.raw.end() - kGuidBytes);
}

bool belongs_to(Transport transport, const GidEntry& entry, const NetworkInterface& interface) {
  if (transport == Transport::kInfiniBand) return is_ipoib_of(entry.gid, interface);
  if (entry.interface != 0) return entry.interface == interface.index;
  return transport == Transport::kIwarp && starts_with_mac(entry.gid, interface);
}

/// An entry names its interface by number. In a container, that number may belong to an interface of another name
/// space. Therefore the local interface with that number must also have the address.
bool is_of_this_name_space(const AddressingInput& input, Transport transport, const GidEntry& entry) {
  if (transport == Transport::kInfiniBand || entry.interface == 0 || input.interfaces.empty()) return true;
  const NetworkInterface* const interface = find_interface(input, entry.interface);
  if (interface == nullptr) return false;
  if (transport == Transport::kIwarp) return starts_with_mac(entry.gid, *interface);
  if (interface->owns(entry.gid)) return true;
  return verbs::reach_of(entry.gid) == Reach::kLink && made_from_mac(entry.gid, *interface);
}

bool leads_to_this_host(const AddressingInput& input) {
  return input.route && verbs::reach_of(input.route->source) == Reach::kHost;
}

bool is_wanted(const AddressingInput& input, const GidEntry& entry) {
  return !input.options.gid_type || *input.options.gid_type == entry.type;
}

bool is_usable(const AddressingInput& input, Transport transport, const GidEntry& entry) {
  const bool too_short = input.route && !leads_to_this_host(input) && verbs::reach_of(entry.gid) == Reach::kHost;
  return is_wanted(input, entry) && !too_short && is_of_this_name_space(input, transport, entry);
}

RouteFit fit_of(const AddressingInput& input, Transport transport, const GidEntry& entry) {
  if (!input.route) return RouteFit::kElsewhere;
  if ((entry.gid == input.route->source)) return RouteFit::kSource;
  const NetworkInterface* const interface = input.route_interface();
  const bool on_it = interface != nullptr && belongs_to(transport, entry, *interface);
  return on_it ? RouteFit::kInterface : RouteFit::kElsewhere;
}

auto kind_of(const GidEntry& entry) {
  return std::tuple(verbs::reach_of(entry.gid), -static_cast<int>(entry.type), !verbs::is_mapped_ipv4(entry.gid));
}

std::vector<GidEntry> usable_gids(const AddressingInput& input, const PortFacts& port) {
  std::vector<GidEntry> usable;
  std::ranges::copy_if(port.gids, std::back_inserter(usable),
                       [&](const GidEntry& entry) { return is_usable(input, port.transport, entry); });
  const auto rank = [&](const GidEntry& entry) {
    // On InfiniBand every peer of the subnet can use the default GID, index 0.
    const bool is_ib = port.transport == Transport::kInfiniBand;
    const auto kind = is_ib ? decltype(kind_of(entry))() : kind_of(entry);
    return std::tuple(fit_of(input, port.transport, entry), kind, entry.index);
  };
  std::ranges::sort(usable, [&](const GidEntry& a, const GidEntry& b) { return rank(a) < rank(b); });
  std::set<decltype(kind_of(GidEntry{}))> seen;
  std::erase_if(usable, [&](const GidEntry& entry) { return !seen.insert(kind_of(entry)).second; });
  if (usable.size() > kMaxGidChoices) usable.resize(kMaxGidChoices);
  return usable;
}

std::string port_text(const PortFacts& port) {
  return port.device + " port " + std::to_string(port.number);
}

std::string value_text(const GidEntry& entry) {
  return std::to_string(entry.index) + " " + entry.gid.to_text() + " (" + to_text(entry.type) + ")";
}

std::string gid_text(const GidEntry& entry) {
  return "GID " + value_text(entry);
}

std::string table_text(const AddressingInput& input, const PortFacts& port) {
  if (port.gids.empty()) return "its GID table is empty; give the network interface an address";
  std::string text;
  for (const GidEntry& entry : port.gids) {
    text += (text.empty() ? "it has " : ", ") + entry.to_text();
    if (!is_of_this_name_space(input, port.transport, entry)) text += " of another network namespace";
  }
  return text;
}

Error no_usable_gid(const AddressingInput& input, const PortFacts& port) {
  const bool wanted = std::ranges::any_of(port.gids, [&](const GidEntry& entry) { return is_wanted(input, entry); });
  std::string lacks = "no GID";
  if (input.options.gid_type) lacks = "no " + to_text(*input.options.gid_type) + " GID";
  if (wanted) lacks += input.route ? " that could reach " + input.route->text() : " of this network namespace";
  return make_error(Errc::kNoUsableGid, port_text(port) + " has " + lacks + ": " + table_text(input, port));
}

std::string route_text(const AddressingInput& input) {
  const NetworkInterface* const interface = input.route_interface();
  return "the route to " + input.route->text() + (interface != nullptr ? " uses " + interface->name : "");
}

std::string reason_for(const AddressingInput& input, const PortFacts& port, const GidEntry& entry) {
  if (!input.route) return "no peer is known yet";
  const RouteFit fit = fit_of(input, port.transport, entry);
  if (leads_to_this_host(input)) {
    const char* way = fit == RouteFit::kSource ? "" : ", which the device reaches by its own address";
    return input.route->text() + (input.route->of_clients ? " are on this host" : " is this host") + way;
  }
  if (fit == RouteFit::kSource && input.route_interface() == nullptr) {
    return route_text(input) + " has this source address";
  }
  if (fit == RouteFit::kSource) return route_text(input) + ", and this GID is the address of that interface";
  if (fit == RouteFit::kInterface) {
    return route_text(input) + ", and this GID belongs to that interface; " + input.route->source.to_text() +
           " has no GID";
  }
  if (port.transport == Transport::kInfiniBand) return "InfiniBand needs no IP route to " + input.route->text();
  return route_text(input) + " from " + input.route->source.to_text() +
         ", which is not an address of this port: the port must reach the peer over another network";
}

Result<GidChoice> explicit_gid(const AddressingInput& input, const PortFacts& port) {
  const auto found = std::ranges::find(port.gids, input.options.gid_index, &GidEntry::index);
  if (found == port.gids.end()) {
    return make_error(Errc::kNoUsableGid, "GID index " + std::to_string(input.options.gid_index) + " of " +
                                              port_text(port) + " is empty; " + table_text(input, port));
  }
  return GidChoice{.gids = {*found}, .explanation = "GID " + found->to_text() + ": its index was given"};
}

}  // namespace

std::string to_text(GidType type) {
  return verbs::gid_type_text(static_cast<std::uint32_t>(type));
}

std::string GidEntry::to_text() const {
  return "index " + value_text(*this);
}

std::string PeerRoute::text() const {
  return of_clients ? "clients of " + peer : peer;
}

bool NetworkInterface::owns(const Gid& address) const noexcept {
  return std::ranges::any_of(addresses, [&](const Gid& own) { return (own == address); });
}

const NetworkInterface* AddressingInput::route_interface() const noexcept {
  if (!route) return nullptr;
  if (route->interface != 0) return find_interface(*this, route->interface);
  const auto owner =
      std::ranges::find_if(interfaces, [&](const NetworkInterface& each) { return each.owns(route->source); });
  return owner == interfaces.end() ? nullptr : &*owner;
}

RouteFit route_fit(const AddressingInput& input, const PortFacts& port) {
  const std::vector<GidEntry> usable = usable_gids(input, port);
  return usable.empty() ? RouteFit::kElsewhere : fit_of(input, port.transport, usable.front());
}

Result<GidChoice> choose_gids(const AddressingInput& input, const PortFacts& port) {
  if (input.options.gid_index >= 0) return explicit_gid(input, port);
  GidChoice choice{.gids = usable_gids(input, port)};
  if (choice.gids.empty()) return no_usable_gid(input, port);
  const GidEntry& best = choice.gids.front();
  choice.explanation = gid_text(best) + ": " + reason_for(input, port, best);
  return choice;
}

}  // namespace rdmacomm
