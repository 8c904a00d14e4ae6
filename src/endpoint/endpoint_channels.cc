// EndPointCore: channels that are opened after the others were connected.
#include <algorithm>

#include "device/addressing.h"
#include "device/device_core.h"
#include "endpoint/channel_opening.h"
#include "endpoint/endpoint_core.h"

namespace rdmacomm {

using Step = ChannelMessage::Step;

Status EndPointCore::check_more(const ChannelConfig& config) {
  HcaConfig one = config_;
  one.channels = {config};
  if (!config.pooled_receives) one.receive_pool_key.clear();
  if (Status valid = one.validate(device_->limits()); !valid) return valid;
  const auto way = connector_->rdma_way();
  if (!way) return way.status();
  if (*way) {
    return make_error(Errc::kNotSupported, "rdma_cm connects all channels to " + connector_->peer_text() +
                                               " at the same time: add channel '" + config.name +
                                               "' in lazy_config_hca(), on the endpoint's device");
  }
  const std::lock_guard lock(mutex_);
  const bool taken = !names_tried_.insert(config.name).second;
  const auto has_name = [&](const ChannelConfig& each) { return each.name == config.name && !each.device; };
  if (taken || std::ranges::any_of(config_.channels, has_name)) {
    return make_error(
        Errc::kInvalidArgument,
        "channel '" + config.name + "' already exists, or an earlier attempt to open it failed; choose another name");
  }
  const auto first = std::ranges::count(config_.channels, RDMADevice(), &ChannelConfig::device);
  if (static_cast<std::size_t>(first) + names_tried_.size() <= HcaConfig::kMaxChannels) return {};
  return make_error(Errc::kInvalidArgument, "channel '" + config.name + "' cannot be opened: an endpoint has at most " +
                                                std::to_string(HcaConfig::kMaxChannels) + " channels");
}

Result<ChannelCore*> EndPointCore::open_channel(const ChannelConfig& config, Deadline deadline) {
  if (!alive()) return why_over().error();
  return open_one(config, deadline);
}

Status EndPointCore::open_more(Deadline deadline) {
  for (const ChannelConfig& each : config_.channels) {
    if (!each.device) continue;
    const auto opened = open_one(each, deadline);
    if (!opened.has_value()) return opened.error();
  }
  return {};
}

Result<ChannelCore*> EndPointCore::open_one(const ChannelConfig& config, Deadline deadline) {
  const auto about = [&](const Error& why) {
    return make_error(why.code, "channel '" + config.name + "': " + why.context);
  };
  if (Status may = check_more(config); !may) return may.error();
  ChannelOpening opening(*connector_, *inbox_, config.name, deadline);
  auto entry = begin_entry(config);
  if (!entry) {
    opening.refuse(entry.error());
    return about(entry.error());
  }
  // The end that chose the GIDs when the endpoint was set up answers; the other one offers.
  const Status connected = chosen_gid_ ? answer_channel(**entry, opening) : offer_channel(**entry, opening);
  if (!connected) {
    opening.refuse(connected.error());
    (void)(*entry)->channel->adapter().to_error();
    return about(connected.error());
  }
  (*entry)->ready.store(true, std::memory_order_release);
  if (!over()) return (*entry)->channel.get();
  (void)(*entry)->channel->adapter().to_error();  // the thread that ended the endpoint may have missed this channel
  return why_over().error();
}

/// Creates the channel: its queue pair is in INIT, it is in the list, and its queue is served if a thread of the
/// session does that. All this happens before the first completion.
Result<EndPointCore::ChannelEntry*> EndPointCore::begin_entry(const ChannelConfig& config) {
  ChannelConfig fitted = config;
  const std::shared_ptr<DeviceCore>& device = config.device ? config.device.core() : device_;
  fitted.adapter = config.adapter.fitted(device->limits());
  std::vector<GidEntry> gids = gids_;
  if (config.device) {
    auto choice =
        device->choose_gids(PeerRoute{.source = connector_->local_gid_hint(), .peer = connector_->peer_address()});
    if (!choice) return choice.error();
    gids = std::move(choice->gids);
  }
  auto entry = make_entry(fitted, std::move(gids));
  if (!entry) return entry.error();
  ChannelEntry& added = add_entry(std::move(*entry));
  if (!added.served || added.queue == queue_) return &added;
  if (Status served = server_->serve(shared_from_this(), added.queue); !served) return served.error();
  return &added;
}

EndPointDescription EndPointCore::description_of(const ChannelEntry& entry) {
  EndPointDescription description;
  for (const GidEntry& each : entry.gids) description.gids.push_back({static_cast<std::uint8_t>(each.type), each.gid});
  description.channels.push_back({entry.channel->name(), entry.channel->adapter().address()});
  return description;
}

/// Connects with two GIDs that work together. Returns the index of the remote GID, if it was chosen here.
Result<std::optional<std::size_t>> EndPointCore::connect_entry(ChannelEntry& entry, EndPointDescription theirs) {
  auto agreed = agree_on_gids(entry.gids, entry.device->transport(), theirs);
  if (!agreed) return agreed.error();
  AdapterCore& adapter = entry.channel->adapter();
  Status status = adapter.use_gid(agreed->ours);
  if (status) status = adapter.connect(theirs.channel(entry.channel->name())->address);
  if (!status) return status.error();
  return agreed->theirs;
}

Status EndPointCore::offer_channel(ChannelEntry& entry, ChannelOpening& opening) {
  if (Status sent = opening.send(Step::kOffer, description_of(entry)); !sent) return sent;
  auto answer = opening.receive(Step::kAnswer);
  if (!answer) return answer.status();
  const auto connected = connect_entry(entry, std::move(*answer));
  if (!connected) return connected.status();
  return opening.send(Step::kReady);
}

Status EndPointCore::answer_channel(ChannelEntry& entry, ChannelOpening& opening) {
  auto offer = opening.receive(Step::kOffer);
  if (!offer) return offer.status();
  const auto chosen = connect_entry(entry, std::move(*offer));
  if (!chosen) return chosen.status();
  EndPointDescription answer = description_of(entry);
  answer.chosen_gid = *chosen;
  if (Status sent = opening.send(Step::kAnswer, std::move(answer)); !sent) return sent;
  return opening.receive(Step::kReady).status();
}

}  // namespace rdmacomm
