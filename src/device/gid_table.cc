// The GIDs and P_Keys of the port that a DeviceCore uses, and the choice among them.
#include <endian.h>

#include "device/device_core.h"
#include "device/device_scan.h"
#include "verbs/describe.h"

namespace rdmacomm {
namespace {

constexpr std::uint16_t kPartition = 0x7fff;  // of a P_Key; the highest bit means: full member

std::string table_text(const std::vector<DeviceCore::PKey>& pkeys) {
  if (pkeys.empty()) return "is empty";
  std::string text;
  for (const DeviceCore::PKey& each : pkeys) {
    text += (text.empty() ? "has " : ", ") + verbs::pkey_text(each.value) + " at index " + std::to_string(each.index);
  }
  return text;
}

}  // namespace

PortFacts DeviceCore::port_facts() const {
  return {.device = name_, .number = port_, .transport = transport_, .state = port_attributes_.state, .gids = gids()};
}

std::vector<GidEntry> DeviceCore::gids() const {
  return read_gids(api_, context_.get(), port_, port_attributes_);
}

Result<GidChoice> DeviceCore::choose_gids(const std::optional<PeerRoute>& route) const {
  const AddressingInput input{.interfaces = network_.interfaces(), .route = route, .options = options_};
  return rdmacomm::choose_gids(input, port_facts());
}

Result<GidEntry> DeviceCore::choose_gid(const std::optional<Gid>& local_address) const {
  std::optional<PeerRoute> route;
  if (local_address) route = PeerRoute{.source = *local_address, .peer = "the peer"};
  auto choice = choose_gids(route);
  if (!choice) return choice.error();
  return choice->gids.front();
}

std::vector<DeviceCore::PKey> DeviceCore::pkeys() const {
  std::vector<PKey> found;
  for (int index = 0; index < port_attributes_.pkey_tbl_len; ++index) {
    __be16 pkey = 0;
    if (api_.query_pkey(context_.get(), port_, index, &pkey) != 0 || (be16toh(pkey) & kPartition) == 0) continue;
    found.push_back({static_cast<std::uint16_t>(index), be16toh(pkey)});
  }
  return found;
}

Result<DeviceCore::PKey> DeviceCore::find_pkey(std::uint16_t pkey) const {
  const std::vector<PKey> table = pkeys();
  std::optional<PKey> found;
  for (const PKey& each : table) {
    const bool is_better = !found || each.value > found->value;  // a full member's P_Key is the larger number
    if ((each.value & kPartition) == (pkey & kPartition) && is_better) found = each;
  }
  if (found) return *found;
  return make_error(Errc::kInvalidArgument, to_text() + " is not in the partition of P_Key " + verbs::pkey_text(pkey) +
                                                ": its table " + table_text(table) +
                                                "; the subnet manager assigns P_Keys");
}

}  // namespace rdmacomm
