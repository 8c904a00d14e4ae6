// The GIDs of a device's port, and which of them to use towards a peer.
#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>

#include "rdmacomm/device/rdma_device.h"
#include "rdmacomm/verbs/call.h"
#include "rdmacomm/verbs/describe.h"

namespace rdmacomm {
namespace {

constexpr int kMaxGids = 256;  // ibv_global_route::sgid_index has 8 bits

bool is_empty(const ibv_gid& gid) {
  return std::ranges::all_of(gid.raw, [](std::uint8_t byte) { return byte == 0; });
}

bool equal(const ibv_gid& a, const ibv_gid& b) {
  return std::memcmp(a.raw, b.raw, sizeof(a.raw)) == 0;
}

// ::ffff:a.b.c.d, the form of an IPv4 address as a GID.
bool is_mapped_ipv4(const ibv_gid& gid) {
  constexpr std::array<std::uint8_t, 12> kPrefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::equal(kPrefix.begin(), kPrefix.end(), gid.raw);
}

// fe80::/10, or 169.254/16: good on one link only.
bool is_link_local(const ibv_gid& gid) {
  if (is_mapped_ipv4(gid)) return gid.raw[12] == 169 && gid.raw[13] == 254;
  return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80;
}

bool is_loopback(const ibv_gid& gid) {
  if (is_mapped_ipv4(gid)) return gid.raw[12] == 127;
  return std::all_of(gid.raw, gid.raw + 15, [](std::uint8_t byte) { return byte == 0; }) && gid.raw[15] == 1;
}

// How far packets from this address get.
enum class Reach { kRoutable, kLink, kHost };

Reach reach_of(const ibv_gid& gid) {
  if (is_loopback(gid)) return Reach::kHost;
  return is_link_local(gid) ? Reach::kLink : Reach::kRoutable;
}

// Sorts the better entry first.
auto rank(const GidEntry& entry, const std::optional<ibv_gid>& local_address) {
  const bool reaches_peer = local_address.has_value() && equal(entry.gid, *local_address);
  return std::tuple(!reaches_peer, reach_of(entry.gid), -static_cast<int>(entry.type), !is_mapped_ipv4(entry.gid),
                    entry.index);
}

std::string table_text(const std::vector<GidEntry>& entries) {
  if (entries.empty()) return "its GID table is empty; give the network interface an address";
  std::string text = "it has";
  for (const GidEntry& entry : entries) text += (&entry == &entries.front() ? " " : ", ") + entry.to_text();
  return text;
}

}  // namespace

std::string GidEntry::to_text() const {
  return "index " + std::to_string(index) + " " + verbs::to_text(gid) + " (" +
         verbs::gid_type_text(static_cast<std::uint32_t>(type)) + ")";
}

Result<GidEntry> RDMADevice::query_gid(int index) const {
  ibv_gid_entry entry{};
  const int returned = api_.query_gid_entry(context_.get(), port_, static_cast<std::uint32_t>(index), &entry);
  Status status = verbs::from_value(returned, "read GID index " + std::to_string(index) + " of " + to_text());
  if (!status.ok()) return status.error();
  if (is_empty(entry.gid)) {
    return make_error(Errc::kNoUsableGid, "GID index " + std::to_string(index) + " of " + to_text() + " is empty");
  }
  return GidEntry{index, static_cast<GidType>(entry.gid_type), entry.gid};
}

std::vector<GidEntry> RDMADevice::gids() const {
  std::vector<GidEntry> entries;
  const int count = std::min(port_attributes_.gid_tbl_len, kMaxGids);
  for (int index = 0; index < count; ++index) {
    // An empty entry is reported as an error by some devices and as zeroes by others.
    if (auto entry = query_gid(index)) entries.push_back(*entry);
  }
  return entries;
}

Result<GidEntry> RDMADevice::choose_gid(const std::optional<ibv_gid>& local_address) const {
  if (options_.gid_index >= 0) {
    auto entry = query_gid(options_.gid_index);
    if (entry) return entry;
    return make_error(Errc::kNoUsableGid, entry.error().context + "; " + table_text(gids()));
  }
  const std::vector<GidEntry> all = gids();
  std::vector<GidEntry> wanted;
  std::ranges::copy_if(all, std::back_inserter(wanted), [this](const GidEntry& entry) {
    return !options_.gid_type.has_value() || *options_.gid_type == entry.type;
  });
  if (wanted.empty()) {
    const std::string type =
        options_.gid_type ? verbs::gid_type_text(static_cast<std::uint32_t>(*options_.gid_type)) + " " : std::string();
    return make_error(Errc::kNoUsableGid, to_text() + " has no " + type + "GID: " + table_text(all));
  }
  return *std::ranges::min_element(
      wanted, [&](const GidEntry& a, const GidEntry& b) { return rank(a, local_address) < rank(b, local_address); });
}

}  // namespace rdmacomm
