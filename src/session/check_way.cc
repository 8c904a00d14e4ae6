#include "session/check_way.h"

#include <algorithm>

namespace rdmacomm {
namespace {

constexpr const char* kByGid =
    ": rdma_cm chooses the GID from the IP addresses; do not choose a GID, or connect by TCP (ConnectorKind::kTcp)";

std::string text_of(const GidEntry* entry, int index) {
  return entry != nullptr ? entry->to_text() : "index " + std::to_string(index) + ", which is empty";
}

const GidEntry* find(const std::vector<GidEntry>& gids, int index) {
  const auto found = std::ranges::find(gids, index, &GidEntry::index);
  return found == gids.end() ? nullptr : &*found;
}

/// The requested GID, if rdma_cm has chosen another one; else empty.
std::string other_gid(const DeviceOptions& asked, const std::vector<GidEntry>& gids, int chosen) {
  if (asked.gid_index >= 0 && asked.gid_index != chosen) return text_of(find(gids, asked.gid_index), asked.gid_index);
  const GidEntry* const entry = find(gids, chosen);
  if (!asked.gid_type || (entry != nullptr && entry->type == *asked.gid_type)) return {};
  return "type " + to_text(*asked.gid_type);
}

}  // namespace

Status check_way(const RdmaWay& way, const DeviceCore& device, const std::string& connection) {
  const auto refusal = [&connection](const std::string& chosen, const std::string& asked) {
    return make_error(Errc::kInvalidArgument, "rdma_cm connects " + connection + " by " + chosen + ", but " + asked);
  };
  if (way.device != device.name()) {
    return refusal("the device " + way.device,
                   "the local session uses " + device.name() + ": choose the right device (DeviceOptions::name)");
  }
  if (way.port != device.port()) {
    return refusal("port " + std::to_string(way.port) + " of " + way.device,
                   "the local session uses port " + std::to_string(device.port()) +
                       ": choose the right port (DeviceOptions::port)");
  }
  if (!way.gid_index) return {};
  const std::vector<GidEntry> gids = device.gids();
  const std::string asked = other_gid(device.options(), gids, *way.gid_index);
  if (asked.empty()) return {};
  return refusal("GID " + text_of(find(gids, *way.gid_index), *way.gid_index) + " of " + way.device,
                 "the local session requires GID " + asked + kByGid);
}

}  // namespace rdmacomm
