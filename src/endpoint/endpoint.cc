#include "rdmacomm/endpoint/endpoint.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "rdmacomm/adapter/gid_agreement.h"
#include "rdmacomm/base/log.h"

namespace rdmacomm {
namespace {

/// By TCP the ends know each other's LIDs, which mean nothing in another subnet.
void warn_of_router(const verbs::QpAddress& ours, const verbs::QpAddress& theirs) {
  const std::string warning = router_warning(ours.transport, ours.gid, theirs.gid);
  if (!warning.empty()) RDMACOMM_LOG(WARNING) << warning;
}

}  // namespace

static_assert(kMaxGidChoices <= EndPointCard::kMaxGids, "every GID that is chosen can be offered");

EndPoint::EndPoint(EndPointParts parts)
    : device_(std::move(parts.device)),
      connector_(std::move(parts.connector)),
      config_(parts.config.fitted(device_->limits())),
      group_(std::move(parts.shared_queue)) {}

EndPoint::~EndPoint() {
  const Status closed = close();
  if (!closed) RDMACOMM_LOG(ERROR) << "closing the endpoint to " << peer() << ": " << closed.message();
  detach();
}

// The channels and the peer -------------------------------------------------------------------------------------------

Result<std::shared_ptr<EndPoint>> EndPoint::create(EndPointParts parts) {
  if (Status valid = parts.config.validate(parts.device->limits()); !valid) return valid.error();
  std::shared_ptr<EndPoint> endpoint(new EndPoint(std::move(parts)));
  if (Status made = endpoint->make_channels(); !made) {
    // Not an end to be said goodbye for: the caller may still tell the peer the reason.
    endpoint->move_to(State::kClosed, {});
    return made.error();
  }
  return endpoint;
}

Status EndPoint::choose_gids() {
  auto choice =
      device_->choose_gids(PeerRoute{.source = connector_->local_gid_hint(), .peer = connector_->peer_address()});
  if (!choice) return choice.status();
  const auto way = connector_->rdma_way();
  if (!way) return way.status();
  gids_ = std::move(choice->gids);
  if (!*way || !(*way)->gid_index) {
    RDMACOMM_VLOG(1) << "offers " << connector_->peer_address() << " " << choice->explanation;
    return {};
  }
  // Not a question any more: the queue pairs are connected by the GID that rdma_cm goes by.
  for (const GidEntry& each : device_->gids()) {
    if (each.index == *(*way)->gid_index) gids_ = {each};
  }
  RDMACOMM_VLOG(1) << "reaches " << connector_->peer_address() << " by GID " << gids_.front().to_text()
                   << ": rdma_cm has chosen it";
  return {};
}

Status EndPoint::make_channels() {
  if (Status chosen = choose_gids(); !chosen) return chosen;
  if (!group_) {
    // Also where every channel has its own queue: stop() ends waits by the group.
    auto group = CompletionGroup::create(device_, config_.polling_mode, std::max(1, config_.queue_depth()));
    if (!group) return group.status();
    group_ = std::move(*group);
  }
  for (const ChannelConfig& each : config_.channels) {
    if (Status made = make_channel(each); !made) return made;
  }
  return {};
}

Status EndPoint::make_channel(const ChannelConfig& config) {
  Line line;
  if (config.own_completion_queue) {
    auto queue = CompletionQueue::create(*device_, {.depth = *config.adapter.send_depth + *config.adapter.recv_depth});
    if (!queue) return queue.status();
    line.own_queue = std::move(*queue);
  }
  CompletionQueue& queue = line.own_queue ? *line.own_queue : group_->queue();
  auto adapter = RDMAAdapter::create(*device_, queue, queue, gids_.front(), config.adapter);
  if (!adapter) {
    return make_error(adapter.code(), "channel '" + config.name + "': " + adapter.error().context);
  }
  auto channel = RDMAChannel::create(config.name, std::move(*adapter));
  if (!channel) return channel.status();
  line.channel = std::move(*channel);
  if (!line.own_queue) group_->poller().attach(*line.channel);
  lines_.push_back(std::move(line));
  return {};
}

EndPointCard EndPoint::card() const {
  EndPointCard card{.chosen_gid = chosen_gid_, .regions = config_.published, .private_data = config_.private_data};
  for (const GidEntry& each : gids_) card.gids.push_back({static_cast<std::uint8_t>(each.type), each.gid});
  for (const Line& line : lines_) card.channels.push_back({line.channel->name(), line.channel->adapter().address()});
  return card;
}

Status EndPoint::meet(EndPointCard remote) {
  const std::string mine = card().channel_names();
  const std::string theirs = remote.channel_names();
  if (mine != theirs) {
    return make_error(Errc::kIncompatiblePeer, "the channels of " + connector_->local_address() + " are: " + mine +
                                                   "; those of " + connector_->peer_address() + ": " + theirs +
                                                   "; give both the same names in lazy_config_hca()");
  }
  if (Status agreed = agree_on_gids(remote); !agreed) return agreed;
  remote_ = std::move(remote);
  return {};
}

Status EndPoint::connect(Deadline deadline) {
  // Both sides in the same order: rdma_cm connects one queue pair after the other.
  std::vector<RDMAChannel*> channels;
  for (const Line& line : lines_) channels.push_back(line.channel.get());
  std::ranges::sort(channels, {}, &RDMAChannel::name);
  for (RDMAChannel* channel : channels) {
    const Status connected = connect_channel(*channel, deadline);
    if (!connected)
      return make_error(connected.code(), "channel '" + channel->name() + "': " + connected.error().context);
  }
  connector_->all_linked();
  return {};
}

Status EndPoint::agree_on_gids(EndPointCard& remote) {
  if (remote.chosen_gid) {
    if (*remote.chosen_gid < gids_.size()) return use_gid(gids_[*remote.chosen_gid]);
    return make_error(Errc::kBadMessage, connector_->peer_address() + " chose GID number " +
                                             std::to_string(*remote.chosen_gid) + " of " +
                                             std::to_string(gids_.size()) + " that were offered");
  }
  const GidOffer theirs{remote.channels.front().address.transport, remote.gids};
  const auto pair = rdmacomm::agree_on_gids({device_->transport(), card().gids}, theirs);
  if (!pair) return pair.status();
  chosen_gid_ = pair->theirs;
  for (EndPointCard::Channel& each : remote.channels) {
    each.address.gid_type = remote.gids[pair->theirs].type;
    each.address.gid = remote.gids[pair->theirs].gid;
  }
  return use_gid(gids_[pair->ours]);
}

Status EndPoint::use_gid(const GidEntry& gid) {
  for (const Line& line : lines_) {
    if (Status used = line.channel->adapter().use_gid(gid); !used) return used;
  }
  return {};
}

Status EndPoint::connect_channel(RDMAChannel& channel, Deadline deadline) {
  RDMAAdapter& adapter = channel.adapter();
  const verbs::QpAddress& theirs = remote_.channel(channel.name())->address;
  auto link = connector_->link(adapter.address(), theirs, deadline);
  if (!link && &channel == lines_.front().channel.get()) warn_of_router(adapter.address(), theirs);
  return link ? adapter.connect(theirs, std::move(link)) : adapter.connect(theirs);
}

RDMAChannel* EndPoint::channel(std::string_view name) const noexcept {
  for (const Line& line : lines_) {
    if (line.channel->name() == name) return line.channel.get();
  }
  return nullptr;
}

std::optional<RemoteRegion> EndPoint::remote_region(std::string_view name) const {
  const auto found = std::ranges::find(remote_.regions, name, &PublishedRegion::name);
  if (found == remote_.regions.end()) return {};
  return found->region;
}

std::string EndPoint::peer() const {
  std::string text = connector_->peer_text();
  if (remote_.channels.empty()) return text;
  const bool named = text.ends_with(')');
  if (named) text.pop_back();
  const char* separator = named ? "; " : " (";
  for (const EndPointCard::Channel& each : remote_.channels) {
    char number[16];
    std::snprintf(number, sizeof(number), "0x%06x", each.address.qpn);
    text += separator + each.name + " QPN " + number;
    separator = ", ";
  }
  return text + ")";
}

// Its end -------------------------------------------------------------------------------------------------------------

/// The only place where state_ changes. States only go forward; the first reason for the end stays.
bool EndPoint::move_to(State next, std::optional<Error> why) {
  const auto rank = [](State state) {
    return state == State::kPeerLost || state == State::kFailed ? State::kPeerLeft : state;
  };
  const std::lock_guard lock(mutex_);
  const State now = state_.load(std::memory_order_relaxed);
  if (rank(next) <= rank(now)) return false;
  if (why && !end_) {
    end_ = std::move(why);
    ended_in_order_ = next != State::kPeerLost && next != State::kFailed;
  }
  if (next == State::kEstablished) was_established_.store(true, std::memory_order_release);
  state_.store(next, std::memory_order_release);
  return true;
}

Status EndPoint::mark_established() {
  if (!move_to(State::kEstablished, {})) return status();
  group_->notify();
  return {};
}

Status EndPoint::status() const {
  const std::lock_guard lock(mutex_);
  if (end_) return *end_;
  return {};
}

bool EndPoint::ended_in_order() const {
  const std::lock_guard lock(mutex_);
  return end_ && ended_in_order_;
}

Status EndPoint::why_over() const {
  Status ended = status();
  if (!ended) return ended;
  return make_error(Errc::kNotConnected, "the endpoint to " + peer() + " is not established yet");
}

void EndPoint::check_connection() {
  follow(connector_->check_peer());
}

void EndPoint::keep_alive(std::chrono::steady_clock::time_point now, std::chrono::milliseconds silent_after) {
  follow(connector_->keep_alive(now, silent_after));
}

void EndPoint::follow(PeerState peer_state) {
  if (peer_state == PeerState::kOpen) return;
  const State next = peer_state == PeerState::kLeft ? State::kPeerLeft : State::kPeerLost;
  Error why = connector_->status().error();
  const std::string who = connector_->peer_text();
  if (why.context.starts_with(who)) why.context.replace(0, who.size(), peer());
  if (move_to(next, std::move(why))) group_->notify();
}

void EndPoint::fail(const Error& why) {
  const Error full = make_error(why.code, "the endpoint to " + peer() + " has ended: " + why.context);
  if (!move_to(State::kFailed, full)) return;
  connector_->give_up(why);
  group_->notify();
}

bool EndPoint::uses(const ibv_qp* queue_pair) const noexcept {
  return std::ranges::any_of(lines_, [&](const Line& line) { return line.channel->adapter().qp() == queue_pair; });
}

bool EndPoint::uses(const ibv_cq* completion_queue) const noexcept {
  return std::ranges::any_of(lines_, [&](const Line& line) {
    const RDMAAdapter& adapter = line.channel->adapter();
    return adapter.send_cq().get() == completion_queue || adapter.recv_cq().get() == completion_queue;
  });
}

void EndPoint::stop() noexcept {
  const bool first = move_to(State::kStopped, make_error(Errc::kStopped, "the endpoint to " + peer() + " was stopped"));
  if (!first) return;
  connector_->say_goodbye();
  connector_->shutdown();
  const std::lock_guard lock(error_mutex_);
  for (const Line& line : lines_) {
    if (line.channel->adapter().state() == IBV_QPS_ERR) continue;
    const Status stopped = line.channel->adapter().to_error();
    if (!stopped) RDMACOMM_LOG(ERROR) << "stopping the endpoint to " << peer() << ": " << stopped.message();
  }
  if (group_) group_->notify();
}

Status EndPoint::close() {
  stop();
  if (served_by_this_thread()) return {};
  const std::lock_guard closing(close_mutex_);
  {
    std::unique_lock lock(mutex_);
    served_.wait(lock, [&] { return !server_; });
    if (state_.load(std::memory_order_relaxed) == State::kClosed) return {};
  }
  Status drained_all = drain(Deadline::after(kDrainTime));
  move_to(State::kClosed, {});
  return drained_all;
}

Status EndPoint::drain(Deadline deadline) {
  if (Status begun = begin_drain(); !begun) return begun;
  Status status = drain_group(deadline);
  for (const Line& line : lines_) {
    if (status && line.own_queue) status = line.channel->drain(deadline);
  }
  return status;
}

Status EndPoint::drain_group(Deadline deadline) {
  while (!drained()) {
    std::array<Completion, 16> dropped;
    std::size_t count = 0;
    const std::error_code failed = group_->poll(dropped, count);
    if (failed) return make_error(failed, "cannot drain: the completion queue has failed");
    if (count > 0) continue;
    if (deadline.passed() && !drained()) {
      return make_error(Errc::kTimeout, "the device did not hand all completions out in time");
    }
    std::this_thread::yield();
  }
  return {};
}

// Serving -------------------------------------------------------------------------------------------------------------

bool EndPoint::served_by_this_thread() const {
  const std::lock_guard lock(mutex_);
  return server_ == std::this_thread::get_id();
}

void EndPoint::begin_serving(std::thread::id server) {
  const std::lock_guard lock(mutex_);
  server_ = server;
}

Status EndPoint::begin_drain() {
  const std::lock_guard lock(error_mutex_);
  for (const Line& line : lines_) {
    if (line.own_queue) continue;
    if (Status begun = line.channel->begin_drain(); !begun) return begun;
  }
  return {};
}

bool EndPoint::drained() const noexcept {
  return std::ranges::all_of(lines_, [](const Line& line) { return line.own_queue || line.channel->drained(); });
}

void EndPoint::end_serving() {
  detach();
  move_to(State::kClosed, {});
  const std::lock_guard lock(mutex_);
  server_.reset();
  served_.notify_all();
}

void EndPoint::detach() {
  for (const Line& line : lines_) {
    if (!line.own_queue) group_->poller().detach(*line.channel);
  }
}

}  // namespace rdmacomm
