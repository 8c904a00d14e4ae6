// Chooses the device, and the port of it, to use towards a peer.
#include <algorithm>

#include "device/addressing.h"
#include "verbs/describe.h"
#include "verbs/gid.h"

namespace rdmacomm {
namespace {

/// How suitable a port is; best first.
enum class Fit : std::uint8_t { kOnRoute, kUsable, kLinkLocalOnly, kSoftware, kNoUsableGid };

struct Candidate {
  std::size_t device = 0;
  std::uint8_t port = 1;
  Fit fit = Fit::kNoUsableGid;
  std::string explanation;
};

std::string joined(const std::vector<std::string>& parts, const char* separator) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : separator) + part;
  return text;
}

class DeviceChooser {
 public:
  explicit DeviceChooser(const AddressingInput& input) : input_(input) {}

  Result<AddressChoice> run() {
    std::vector<std::string> known;
    for (std::size_t i = 0; i < input_.devices.size(); ++i) {
      const DeviceFacts& device = input_.devices[i];
      known.push_back(device.name);
      if (!is_named() || device.name == input_.options.name) look_at(i);
    }
    if (!candidates_.empty()) return best();
    if (refusals_.empty()) return unknown_device(known);
    return make_error(why_, joined(refusals_, ", ") + advice());
  }

 private:
  [[nodiscard]] std::string advice() const {
    if (some_are_down_) return "; check the cable, the link and the subnet manager";
    if (soft0_is_down_)
      return "; none of its network interfaces is up: bring one up, for example by `ip link set lo up`";
    return "";
  }

  [[nodiscard]] bool is_named() const { return !input_.options.name.empty(); }

  void look_at(std::size_t index) {
    const DeviceFacts& device = input_.devices[index];
    if (!device.unusable.empty()) return refuse(Errc::kNoActivePort, device.unusable);
    const std::size_t ports = device.ports.size();
    if (ports == 0) return refuse(Errc::kNoActivePort, device.name + " has no ports");
    if (input_.options.port > ports) {
      return refuse(Errc::kInvalidArgument, device.name + " has ports 1 to " + std::to_string(ports) + ", not " +
                                                std::to_string(input_.options.port));
    }
    for (const PortFacts& port : device.ports) {
      if (input_.options.port == 0 || input_.options.port == port.number) look_at(index, port);
    }
  }

  void look_at(std::size_t index, const PortFacts& port) {
    const std::string text = "port " + std::to_string(port.number) + " of " + port.device;
    if (port.state != IBV_PORT_ACTIVE) {
      (port.transport == Transport::kSoftware ? soft0_is_down_ : some_are_down_) = true;
      return refuse(Errc::kNoActivePort, text + " is " + verbs::to_text(port.state));
    }
    // A device that is named is tried in any case, so that the caller sees the reason if it fails.
    const std::string why_not = is_named() ? std::string() : ineligible(port);
    if (!why_not.empty()) return refuse(Errc::kNoActivePort, text + " " + why_not);
    auto gids = choose_gids(input_, port);
    const Fit fit = gids ? fit_of(port, gids->gids.front()) : Fit::kNoUsableGid;
    std::string why = gids ? gids->explanation : gids.error().context;
    if (port.transport == Transport::kSoftware) why += "; it is software, and reaches other hosts by TCP";
    candidates_.push_back({index, port.number, fit, std::move(why)});
  }

  /// Why a port of a device that was not named cannot be used; empty: it can.
  [[nodiscard]] std::string ineligible(const PortFacts& port) const {
    const Transport transport = port.transport;
    if (transport == Transport::kUnknown) return "is not an InfiniBand, RoCE or iWARP device";
    const bool by_cm = input_.connect_by == ConnectBy::kRdmaCm ||
                       (input_.connect_by == ConnectBy::kEither && transport == Transport::kIwarp);
    if (!by_cm) return transport == Transport::kIwarp ? "is an iWARP device, which only rdma_cm can connect" : "";
    if (transport == Transport::kSoftware) return "is a software device, which rdma_cm does not support";
    if (!input_.route || route_fit(input_, port) != RouteFit::kElsewhere) return {};
    return "is not on the route to " + input_.route->text() + ", which rdma_cm uses";
  }

  [[nodiscard]] Fit fit_of(const PortFacts& port, const GidEntry& best) const {
    if (port.transport == Transport::kSoftware) return Fit::kSoftware;
    if (route_fit(input_, port) != RouteFit::kElsewhere) return Fit::kOnRoute;
    const bool has_ip_gids = port.transport == Transport::kRoce;
    return has_ip_gids && verbs::reach_of(best.gid) != verbs::Reach::kRoutable ? Fit::kLinkLocalOnly : Fit::kUsable;
  }

  void refuse(Errc code, std::string why) {
    why_ = refusals_.empty() || why_ == code ? code : Errc::kNoActivePort;
    refusals_.push_back(std::move(why));
  }

  [[nodiscard]] AddressChoice best() const {
    const Candidate& best = *std::ranges::min_element(candidates_, {}, &Candidate::fit);
    std::string text = "chose " + input_.devices[best.device].name + " port " + std::to_string(best.port) +
                       (is_named() ? " as requested, " : " ") + best.explanation;
    std::vector<std::string> unused = refusals_;
    for (const Candidate& each : candidates_) {
      if (each.fit == Fit::kNoUsableGid && &each != &best) unused.push_back(each.explanation);
    }
    if (!unused.empty()) text += "; not usable: " + joined(unused, "; ");
    return {.device = best.device, .port = best.port, .explanation = std::move(text)};
  }

  [[nodiscard]] Error unknown_device(const std::vector<std::string>& known) const {
    if (!is_named()) return make_error(Errc::kNoDevice, "this host has no RDMA device");
    return make_error(Errc::kNoDevice, "this host has no RDMA device \"" + input_.options.name + "\"; its devices: " +
                                           (known.empty() ? std::string("none") : joined(known, ", ")));
  }

  const AddressingInput& input_;
  std::vector<Candidate> candidates_;
  std::vector<std::string> refusals_;
  Errc why_ = Errc::kNoActivePort;
  bool some_are_down_ = false;  // of hardware
  bool soft0_is_down_ = false;  // so it is if this host has no interface that is up
};

}  // namespace

Status DeviceOptions::validate() const {
  if (gid_index < -1 || gid_index > 255) {
    return make_error(Errc::kInvalidArgument, "DeviceOptions::gid_index is " + std::to_string(gid_index) +
                                                  "; it must be 0..255, or -1 to let the library choose");
  }
  return {};
}

Result<AddressChoice> choose_address(const AddressingInput& input) {
  return DeviceChooser(input).run();
}

}  // namespace rdmacomm
