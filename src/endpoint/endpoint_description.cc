#include "endpoint/endpoint_description.h"

#include <algorithm>
#include <set>

#include "base/check_name.h"
#include "base/wire.h"
#include "connector/handshake.h"
#include "rdmacomm/qp_address.h"

namespace rdmacomm {
namespace {

constexpr std::size_t kNameWire = 2 + HcaConfig::kMaxNameBytes;
constexpr std::size_t kMaxWire = 2 + HcaConfig::kMaxChannels * (2 * kNameWire + QpAddress::kWireBytes) + 4 +
                                 EndPointDescription::kMaxGids * OfferedGid::kWireBytes +  //
                                 2 + HcaConfig::kMaxRegions * (kNameWire + 20) +  // a RemoteRegion has 20 bytes
                                 4 + HcaConfig::kMaxPrivateDataBytes;
// In a CHANNEL message, the name of the channel and a step precede the description.
static_assert(kMaxWire + kNameWire + 1 <= kMaxOfferBytes, "every valid description fits into one message");

constexpr std::size_t kNoneChosen = 255;

Error bad_description(const std::string& why) {
  return make_error(Errc::kBadMessage, "a malformed description of an endpoint: " + why);
}

/// Checks each count against its bound before it stores anything.
class DescriptionReader {
 public:
  explicit DescriptionReader(std::span<const std::byte> payload) : reader_(payload) {}

  Status read_into(EndPointDescription& description) {
    Status status = read_list<EndPointDescription::Channel, QpAddress>(
        "channel", HcaConfig::kMaxChannels, description.channels, &EndPointDescription::Channel::address);
    if (status) status = read_more(description);
    if (status) status = read_gids(description);
    if (!status) return status;
    status = read_list<PublishedRegion, RemoteRegion>("region", HcaConfig::kMaxRegions, description.regions,
                                                      &PublishedRegion::region);
    if (!status) return status;
    return read_private_data(description.private_data);
  }

 private:
  template <typename Entry, typename Value>
  Status read_list(const char* what, std::size_t most, std::vector<Entry>& list, Value Entry::*value) {
    const std::size_t count = reader_.get<std::uint16_t>();
    if (count > most)
      return bad_description(std::to_string(count) + " " + what + "s; at most " + std::to_string(most) +
                             " are allowed");
    std::set<std::string> names;
    for (std::size_t i = 0; i < count; ++i) {
      Entry entry;
      entry.name = reader_.get_text();
      if (!check_name(what, entry.name)) return bad_description(std::string("the name of a ") + what + " is not valid");
      if (!names.insert(entry.name).second)
        return bad_description(std::string("two ") + what + "s have the name '" + entry.name + "'");
      auto decoded = Value::decode(reader_.take(Value::kWireBytes));
      if (!decoded) return bad_description("in " + (what + (" '" + entry.name)) + "', " + decoded.error().context);
      entry.*value = *decoded;
      list.push_back(std::move(entry));
    }
    return {};
  }

  Status read_more(EndPointDescription& description) {
    const std::size_t count = reader_.get<std::uint16_t>();
    if (count > HcaConfig::kMaxChannels)
      return bad_description(std::to_string(count) + " more channels; at most " +
                             std::to_string(HcaConfig::kMaxChannels) + " are allowed");
    std::set<std::string> names;
    for (const EndPointDescription::Channel& each : description.channels) names.insert(each.name);
    for (std::size_t i = 0; i < count; ++i) {
      std::string name = reader_.get_text();
      if (!check_name("channel", name)) return bad_description("the name of one more channel is not valid");
      if (!names.insert(name).second) return bad_description("two channels have the name '" + name + "'");
      description.more.push_back(std::move(name));
    }
    return {};
  }

  Status read_gids(EndPointDescription& description) {
    const std::size_t count = reader_.get<std::uint8_t>();
    if (count > EndPointDescription::kMaxGids) {
      return bad_description(std::to_string(count) + " GIDs; at most " + std::to_string(EndPointDescription::kMaxGids) +
                             " are allowed");
    }
    for (std::size_t i = 0; i < count; ++i) {
      auto gid = OfferedGid::decode(reader_);
      if (!gid) return bad_description(gid.error().context);
      description.gids.push_back(*gid);
    }
    const std::size_t chosen = reader_.get<std::uint8_t>();
    if (chosen != kNoneChosen && chosen >= EndPointDescription::kMaxGids) {
      return bad_description("it chooses GID number " + std::to_string(chosen) + ", which does not exist");
    }
    if (chosen != kNoneChosen) description.chosen_gid = chosen;
    return {};
  }

  Status read_private_data(std::vector<std::byte>& data) {
    const std::size_t length = reader_.get<std::uint32_t>();
    if (length > HcaConfig::kMaxPrivateDataBytes) {
      return bad_description(std::to_string(length) + " bytes of private data; at most " +
                             std::to_string(HcaConfig::kMaxPrivateDataBytes) + " are allowed");
    }
    const auto bytes = reader_.take(length);
    if (!reader_.ok()) return bad_description("it is incomplete");
    if (reader_.remaining() > 0)
      return bad_description("it has " + std::to_string(reader_.remaining()) + " extra bytes at its end");
    data.assign(bytes.begin(), bytes.end());
    return {};
  }

  WireReader reader_;
};

}  // namespace

const EndPointDescription::Channel* EndPointDescription::channel(std::string_view name) const noexcept {
  const auto found = std::ranges::find(channels, name, &Channel::name);
  return found == channels.end() ? nullptr : &*found;
}

std::string EndPointDescription::channel_names() const {
  std::set<std::string> sorted;
  for (const Channel& each : channels) sorted.insert(each.name);
  for (const std::string& each : more) sorted.insert(each + " (on another device)");
  std::string text;
  for (const std::string& name : sorted) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::vector<std::byte> EndPointDescription::encode() const {
  WireWriter writer;
  writer.put(static_cast<std::uint16_t>(channels.size()));
  for (const Channel& each : channels) {
    writer.put_text(each.name);
    writer.put_bytes(each.address.encode());
  }
  writer.put(static_cast<std::uint16_t>(more.size()));
  for (const std::string& each : more) writer.put_text(each);
  writer.put(static_cast<std::uint8_t>(gids.size()));
  for (const OfferedGid& each : gids) each.encode(writer);
  writer.put(static_cast<std::uint8_t>(chosen_gid.value_or(kNoneChosen)));
  writer.put(static_cast<std::uint16_t>(regions.size()));
  for (const PublishedRegion& each : regions) {
    writer.put_text(each.name);
    writer.put_bytes(each.region.encode());
  }
  writer.put(static_cast<std::uint32_t>(private_data.size()));
  writer.put_bytes(private_data);
  return writer.take();
}

Result<EndPointDescription> EndPointDescription::decode(std::span<const std::byte> payload) {
  EndPointDescription description;
  if (Status status = DescriptionReader(payload).read_into(description); !status) return status.error();
  return description;
}

}  // namespace rdmacomm
