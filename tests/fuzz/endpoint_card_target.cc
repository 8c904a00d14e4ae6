// Descriptions that two endpoints exchange: the card, and messages about an additional channel.
#include <set>

#include "base/check_name.h"
#include "connector/handshake.h"
#include "endpoint/channel_message.h"
#include "endpoint/endpoint_card.h"
#include "fuzz/properties.h"

namespace rdmacomm::fuzz {
namespace {
namespace endpoint_card_target {

void check_card(const EndPointCard& card) {
  RDMACOMM_FUZZ_CHECK(card.channels.size() <= HcaConfig::kMaxChannels && card.more.size() <= HcaConfig::kMaxChannels);
  RDMACOMM_FUZZ_CHECK(card.regions.size() <= HcaConfig::kMaxRegions && card.gids.size() <= EndPointCard::kMaxGids);
  RDMACOMM_FUZZ_CHECK(card.private_data.size() <= HcaConfig::kMaxPrivateDataBytes);
  RDMACOMM_FUZZ_CHECK(!card.chosen_gid || *card.chosen_gid < EndPointCard::kMaxGids);
  RDMACOMM_FUZZ_CHECK(packed(card).size() <= kMaxOfferBytes);
  std::set<std::string> names;
  for (const auto& each : card.channels) {
    RDMACOMM_FUZZ_CHECK(check_name("channel", each.name).ok() && names.insert(each.name).second);
    RDMACOMM_FUZZ_CHECK(card.channel(each.name) == &each);
    check_harmless(each.address.to_text());
  }
  for (const std::string& each : card.more) {
    RDMACOMM_FUZZ_CHECK(check_name("channel", each).ok() && names.insert(each).second);
  }
  std::set<std::string> regions;
  for (const PublishedRegion& each : card.regions) {
    RDMACOMM_FUZZ_CHECK(check_name("region", each.name).ok() && regions.insert(each.name).second);
    check_harmless(each.region.to_text());
  }
  for (const OfferedGid& each : card.gids) check_harmless(each.to_text());
  check_harmless(card.channel_names());
}

void run(Bytes input) {
  if (const auto card = check_decode<EndPointCard>(input)) check_card(*card);
  if (const auto message = check_decode<ChannelMessage>(input)) {
    RDMACOMM_FUZZ_CHECK(check_name("channel", message->name).ok());
    check_card(message->card);
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
  EndPointCard offer;
  offer.channels = {{.name = "control", .address = address(0x11)}, {.name = "data", .address = address(0x12)}};
  offer.more = {"stripe"};
  offer.gids = {{.type = IBV_GID_TYPE_ROCE_V2, .gid = address(1).gid}};
  PublishedRegion region;
  region.name = "ring";
  region.region = {.address = 0x7f0000001000, .length = 4096, .rkey = 0x101};
  offer.regions = {region};
  offer.private_data = bytes_of("private");
  EndPointCard twice = offer;
  twice.more = {"stripe", "data"};
  EndPointCard answer = offer;
  answer.more.clear();
  answer.chosen_gid = 0;
  const auto message = [&](ChannelMessage::Step step) {
    return ChannelMessage{
        .name = "data", .step = step, .card = offer, .refusal = {Errc::kIncompatiblePeer, "no such channel"}}
        .encode();
  };
  return {
      {"offer", offer.encode()},
      {"answer", answer.encode()},
      {"a_channel_named_twice", twice.encode()},
      {"empty_card", EndPointCard{}.encode()},
      {"channel_offer", message(ChannelMessage::Step::kOffer)},
      {"channel_ready", message(ChannelMessage::Step::kReady)},
      {"channel_refused", message(ChannelMessage::Step::kRefused)},
  };
}

}  // namespace endpoint_card_target
}  // namespace

const Target endpoint_card{"endpoint_card", endpoint_card_target::run, endpoint_card_target::seeds};

}  // namespace rdmacomm::fuzz
