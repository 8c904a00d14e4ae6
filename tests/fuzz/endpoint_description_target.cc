// Descriptions that two endpoints exchange: the description, and messages about an additional channel.
#include <set>

#include "base/check_name.h"
#include "connector/handshake.h"
#include "endpoint/channel_message.h"
#include "endpoint/endpoint_description.h"
#include "fuzz/properties.h"

namespace rdmacomm::fuzz {
namespace {
namespace endpoint_description_target {

void check_description(const EndPointDescription& description) {
  RDMACOMM_FUZZ_CHECK(description.channels.size() <= HcaConfig::kMaxChannels &&
                      description.more.size() <= HcaConfig::kMaxChannels);
  RDMACOMM_FUZZ_CHECK(description.regions.size() <= HcaConfig::kMaxRegions &&
                      description.gids.size() <= EndPointDescription::kMaxGids);
  RDMACOMM_FUZZ_CHECK(description.private_data.size() <= HcaConfig::kMaxPrivateDataBytes);
  RDMACOMM_FUZZ_CHECK(!description.chosen_gid || *description.chosen_gid < EndPointDescription::kMaxGids);
  RDMACOMM_FUZZ_CHECK(packed(description).size() <= kMaxOfferBytes);
  std::set<std::string> names;
  for (const auto& each : description.channels) {
    RDMACOMM_FUZZ_CHECK(check_name("channel", each.name).ok() && names.insert(each.name).second);
    RDMACOMM_FUZZ_CHECK(description.channel(each.name) == &each);
    check_harmless(each.address.to_text());
  }
  for (const std::string& each : description.more) {
    RDMACOMM_FUZZ_CHECK(check_name("channel", each).ok() && names.insert(each).second);
  }
  std::set<std::string> regions;
  for (const PublishedRegion& each : description.regions) {
    RDMACOMM_FUZZ_CHECK(check_name("region", each.name).ok() && regions.insert(each.name).second);
    check_harmless(each.region.to_text());
  }
  for (const OfferedGid& each : description.gids) check_harmless(each.to_text());
  check_harmless(description.channel_names());
}

void run(Bytes input) {
  if (const auto description = check_decode<EndPointDescription>(input)) check_description(*description);
  if (const auto message = check_decode<ChannelMessage>(input)) {
    RDMACOMM_FUZZ_CHECK(check_name("channel", message->name).ok());
    check_description(message->description);
    check_harmless(message->refusal.reason);
  }
}

QpAddress address(std::uint32_t qpn) {
  return {.qpn = qpn,
          .psn = 0x123456,
          .link_layer = IBV_LINK_LAYER_ETHERNET,
          .gid_type = IBV_GID_TYPE_ROCE_V2,
          .gid = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1}},
          .mtu_bytes = 1024,
          .max_read_depth = 16,
          .pkey = 0xffff,
          .transport = Transport::kInfiniBand};
}

std::vector<Seed> seeds() {
  EndPointDescription offer;
  offer.channels = {{.name = "control", .address = address(0x11)}, {.name = "data", .address = address(0x12)}};
  offer.more = {"stripe"};
  offer.gids = {{.type = IBV_GID_TYPE_ROCE_V2, .gid = address(1).gid}};
  PublishedRegion region;
  region.name = "ring";
  region.region = {.address = 0x7f0000001000, .length = 4096, .rkey = 0x101};
  offer.regions = {region};
  offer.private_data = bytes_of("private");
  EndPointDescription twice = offer;
  twice.more = {"stripe", "data"};
  EndPointDescription answer = offer;
  answer.more.clear();
  answer.chosen_gid = 0;
  const auto message = [&](ChannelMessage::Step step) {
    return ChannelMessage{
        .name = "data", .step = step, .description = offer, .refusal = {Errc::kIncompatiblePeer, "no such channel"}}
        .encode();
  };
  return {
      {"offer", offer.encode()},
      {"answer", answer.encode()},
      {"a_channel_named_twice", twice.encode()},
      {"empty_description", EndPointDescription{}.encode()},
      {"channel_offer", message(ChannelMessage::Step::kOffer)},
      {"channel_ready", message(ChannelMessage::Step::kReady)},
      {"channel_refused", message(ChannelMessage::Step::kRefused)},
  };
}

}  // namespace endpoint_description_target
}  // namespace

const Target endpoint_description{"endpoint_description", endpoint_description_target::run,
                                  endpoint_description_target::seeds};

}  // namespace rdmacomm::fuzz
