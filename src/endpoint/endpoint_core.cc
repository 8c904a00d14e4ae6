#include "endpoint/endpoint_core.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "adapter/gid_agreement.h"
#include "base/logging.h"
#include "base/out_of_memory.h"
#include "device/addressing.h"
#include "device/native_queue.h"
#include "endpoint/channel_opening.h"
#include "endpoint/hook_scope.h"
#include "rdmacomm/qp_address.h"

namespace rdmacomm {
namespace {

/// Without rdma_cm the ends send each other their LIDs, which are not valid in another subnet.
void warn_of_router(const QpAddress& ours, const QpAddress& theirs) {
  const std::string warning = router_warning(ours.transport, ours.gid, theirs.gid);
  if (!warning.empty()) RDMACOMM_LOG(WARNING) << warning;
}

}  // namespace

static_assert(kMaxGidChoices <= EndPointDescription::kMaxGids, "every chosen GID can be offered to the peer");

EndPointCore::EndPointCore(EndPointParts parts)
    : device_(std::move(parts.device)),
      connector_(std::move(parts.connector)),
      config_(parts.config.fitted(device_->limits())),
      pool_(std::move(parts.receive_pool)),
      server_(std::move(parts.server)),
      queue_(std::move(parts.shared_queue)),
      inbox_(std::make_unique<ChannelInbox>()) {}

EndPointCore::~EndPointCore() {
  stop();
  [[maybe_unused]] const Status logged = or_out_of_memory([&] {
    const Status closed = finish(Deadline::after(kCloseTime));
    if (!closed) RDMACOMM_LOG(ERROR) << "closing the endpoint to " << peer() << ": " << closed.message();
    return Status();
  });
  detach();
}

// The channels and the peer -------------------------------------------------------------------------------------------

Result<std::shared_ptr<EndPointCore>> EndPointCore::create(EndPointParts parts) {
  if (Status valid = parts.config.validate(parts.device->limits()); !valid) return valid.error();
  std::shared_ptr<EndPointCore> endpoint(new EndPointCore(std::move(parts)));
  if (Status made = or_out_of_memory([&] { return endpoint->make_channels(); }); !made) {
    // No GOODBYE: the caller may still send the peer the reason.
    endpoint->life_.discard();
    return made.error();
  }
  return endpoint;
}

Status EndPointCore::choose_gids() {
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
  // rdma_cm has chosen the GID: the queue pairs must use the same one.
  for (const GidEntry& each : device_->gids()) {
    if (each.index == *(*way)->gid_index) gids_ = {each};
  }
  RDMACOMM_VLOG(1) << "rdma_cm chose GID " << gids_.front().to_text() << " for the connection to "
                   << connector_->peer_address();
  return {};
}

/// Refuses regions that are published in another domain than that of the queue pairs. Without this check the peer would
/// get an error when it uses the region, and its cause would be hard to find.
Status EndPointCore::check_domains() const {
  if (config_.domain && config_.domain.core()->device() != device_) {
    return make_error(Errc::kInvalidArgument,
                      "HcaConfig::domain is not on the endpoint's device, " + device_->to_text());
  }
  using Place = std::pair<RDMADevice, ProtectionDomain>;
  std::vector<Place> own = {{device_, config_.domain}};
  for (const ChannelConfig& each : config_.channels) {
    if (each.device) own.emplace_back(each.device, ProtectionDomain());
  }
  for (const PublishedRegion& each : config_.published) {
    if (!each.device || std::ranges::find(own, Place(each.device, each.domain)) != own.end()) continue;
    return make_error(Errc::kInvalidArgument, "the published region '" + each.name +
                                                  "' is registered in another protection domain than the endpoint's: "
                                                  "make the buffer in HcaConfig::domain, or on the endpoint's device");
  }
  return {};
}

Status EndPointCore::make_channels() {
  if (Status domains = check_domains(); !domains) return domains;
  if (Status chosen = choose_gids(); !chosen) return chosen;
  if (!queue_) {
    // Also needed if every channel has its own queue, because stop() ends waits through this queue.
    const ChannelConfig& first = config_.channels.front();
    const bool per_channel = config_.thread_mode == ThreadMode::kThreadPerChannel;
    const int depth = per_channel ? first.queue_depth(config_.receive_pool) : config_.queue_depth();
    auto queue = CompletionQueue::create(device_, {.polling_mode = config_.polling_mode,
                                                   .waiting = config_.waiting,
                                                   .depth = std::max(1, depth),
                                                   .may_grow = true});
    if (!queue) return queue.status();
    queue_ = std::move(*queue);
  }
  for (const ChannelConfig& each : config_.channels) {
    if (each.device) continue;  // open_more() creates it
    auto entry = make_entry(each, gids_);
    if (!entry) return make_error(entry.code(), "channel '" + each.name + "': " + entry.error().context);
    (*entry)->ready.store(true, std::memory_order_relaxed);
    add_entry(std::move(*entry));
  }
  if (entry_count_.load(std::memory_order_relaxed) > 0) return {};
  return make_error(Errc::kInvalidArgument, "an endpoint needs at least one channel on its own device");
}

/// The queue for the completions of a channel: the shared one, or a new one.
Result<std::shared_ptr<CompletionQueue>> EndPointCore::queue_for(const ChannelConfig& config) {
  if (!config.own_completion_queue && !config.device) {
    if (config_.thread_mode != ThreadMode::kThreadPerChannel) return queue_;
    const std::lock_guard lock(entries_mutex_);
    if (!std::exchange(queue_taken_, true)) return queue_;
  }
  return CompletionQueue::create(config.device ? config.device.core() : device_,
                                 {.polling_mode = config_.polling_mode,
                                  .waiting = config_.waiting,
                                  .depth = config.queue_depth(config_.receive_pool)});
}

Result<std::unique_ptr<EndPointCore::ChannelEntry>> EndPointCore::make_entry(const ChannelConfig& config,
                                                                             std::vector<GidEntry> gids) {
  auto entry = std::make_unique<ChannelEntry>();
  entry->device = config.device ? config.device.core() : device_;
  entry->gids = std::move(gids);
  entry->served = served_elsewhere() && !config.own_completion_queue;
  auto queue = queue_for(config);
  if (!queue) return queue.error();
  entry->queue = std::move(*queue);
  const std::shared_ptr<ReceivePoolCore> pool = config.pooled_receives ? pool_ : nullptr;
  if (pool) {
    if (Status room = entry->queue->make_room_for(pool); !room) return room.error();
  }
  NativeQueue& native = entry->queue->native();
  auto adapter = AdapterCore::create(*entry->device, native, native, entry->gids.front(), config.adapter,
                                     pool ? &pool->queue() : nullptr, config.device ? nullptr : config_.domain.core());
  if (!adapter) return adapter.error();
  auto channel = ChannelCore::create(config.name, std::move(*adapter), pool);
  if (!channel) return channel.error();
  entry->channel = std::move(*channel);
  entry->aside = entry->served;
  if (entry->queue != queue_ && !entry->served) entry->source = std::make_unique<Source>(*this, entry.get());
  CompletionSource* const shared = entry->served ? nullptr : &source_;
  entry->channel->set_source(entry->source ? entry->source.get() : shared, entry->source != nullptr);
  return entry;
}

EndPointCore::ChannelEntry& EndPointCore::add_entry(std::unique_ptr<ChannelEntry> entry) {
  entry->queue->attach(*entry->channel);
  const std::lock_guard lock(entries_mutex_);
  const std::size_t index = entry_count_.load(std::memory_order_relaxed);
  entries_[index] = std::move(entry);
  entry_count_.store(index + 1, std::memory_order_release);
  return *entries_[index];
}

EndPointDescription EndPointCore::description() const {
  EndPointDescription description{
      .chosen_gid = chosen_gid_, .regions = config_.published, .private_data = config_.private_data};
  for (const GidEntry& each : gids_) description.gids.push_back({static_cast<std::uint8_t>(each.type), each.gid});
  for (const auto& entry : entries())
    description.channels.push_back({entry->channel->name(), entry->channel->adapter().address()});
  for (const ChannelConfig& each : config_.channels) {
    if (each.device) description.more.push_back(each.name);
  }
  return description;
}

Status EndPointCore::set_peer(EndPointDescription remote) {
  const std::string mine = description().channel_names();
  const std::string theirs = remote.channel_names();
  if (mine != theirs) {
    return make_error(Errc::kIncompatiblePeer, "the channels of " + connector_->local_address() + " are: " + mine +
                                                   "; the channels of " + connector_->peer_address() + " are: " +
                                                   theirs + "; use the same names in lazy_config_hca() at both peers");
  }
  const auto agreed = agree_on_gids(gids_, device_->transport(), remote);
  if (!agreed) return agreed.status();
  chosen_gid_ = agreed->theirs;
  for (const auto& entry : entries()) {
    if (Status used = entry->channel->adapter().use_gid(agreed->ours); !used) return used;
  }
  const std::lock_guard lock(mutex_);  // a concurrent stop() names the peer, and so reads remote_
  remote_ = std::move(remote);
  return {};
}

Status EndPointCore::connect(Deadline deadline) {
  // Sorted, so that both ends use the same order: rdma_cm connects one queue pair after the other.
  std::vector<ChannelCore*> channels;
  for (const auto& entry : entries()) channels.push_back(entry->channel.get());
  std::ranges::sort(channels, {}, &ChannelCore::name);
  for (ChannelCore* channel : channels) {
    const Status connected = connect_channel(*channel, deadline);
    if (!connected)
      return make_error(connected.code(), "channel '" + channel->name() + "': " + connected.error().context);
  }
  connector_->all_linked();
  return {};
}

/// If the peer has not chosen the GIDs, chooses them, and writes the remote one into the peer's addresses.
Result<EndPointCore::GidAgreement> EndPointCore::agree_on_gids(const std::vector<GidEntry>& gids, Transport transport,
                                                               EndPointDescription& remote) const {
  if (remote.chosen_gid) {
    if (*remote.chosen_gid < gids.size()) return GidAgreement{gids[*remote.chosen_gid], {}};
    return make_error(Errc::kBadMessage, connector_->peer_address() + " chose GID number " +
                                             std::to_string(*remote.chosen_gid) + ", but only " +
                                             std::to_string(gids.size()) + " GIDs were offered");
  }
  std::vector<OfferedGid> ours;
  for (const GidEntry& each : gids) ours.push_back({static_cast<std::uint8_t>(each.type), each.gid});
  const GidOffer theirs{remote.channels.front().address.transport, remote.gids};
  const auto pair = rdmacomm::agree_on_gids({transport, ours}, theirs);
  if (!pair) return pair.error();
  for (EndPointDescription::Channel& each : remote.channels) {
    each.address.gid_type = remote.gids[pair->theirs].type;
    each.address.gid = remote.gids[pair->theirs].gid;
  }
  return GidAgreement{gids[pair->ours], pair->theirs};
}

Status EndPointCore::connect_channel(ChannelCore& channel, Deadline deadline) {
  AdapterCore& adapter = channel.adapter();
  const QpAddress& theirs = remote_.channel(channel.name())->address;
  auto link = connector_->link(adapter.address(), theirs, deadline);
  if (!link && &channel == entries_.front()->channel.get()) warn_of_router(adapter.address(), theirs);
  return link ? adapter.connect(theirs, std::move(link)) : adapter.connect(theirs);
}

ChannelCore* EndPointCore::channel(std::string_view name) const noexcept {
  for (const auto& entry : entries()) {
    if (entry->ready.load(std::memory_order_acquire) && entry->channel->name() == name) return entry->channel.get();
  }
  return nullptr;
}

std::vector<ChannelCore*> EndPointCore::channels() const {
  std::vector<ChannelCore*> all;
  for (const auto& entry : entries()) {
    if (entry->ready.load(std::memory_order_acquire)) all.push_back(entry->channel.get());
  }
  return all;
}

const EndPointCore::ChannelEntry* EndPointCore::entry_of(const ChannelCore& channel) const noexcept {
  const auto found = std::ranges::find(entries(), &channel, [](const auto& entry) { return entry->channel.get(); });
  return found == entries().end() ? nullptr : found->get();
}

Result<RemoteRegion> EndPointCore::remote_region(std::string_view name) const {
  std::string names;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(remote_.regions, name, &PublishedRegion::name);
    if (found != remote_.regions.end()) return found->region;
    constexpr std::size_t kShown = 8;
    for (const PublishedRegion& each : std::span(remote_.regions).first(std::min(kShown, remote_.regions.size()))) {
      names += (names.empty() ? "" : ", ") + each.name;
    }
    if (remote_.regions.size() > kShown) names += ", and " + std::to_string(remote_.regions.size() - kShown) + " more";
  }
  return make_error(Errc::kIncompatiblePeer, peer() + " has published no region '" + std::string(name) +
                                                 "'; its regions: " + (names.empty() ? "none" : names));
}

std::string EndPointCore::peer() const {
  std::string text = connector_->peer_text();
  const std::lock_guard lock(mutex_);
  if (remote_.channels.empty()) return text;
  const bool named = text.ends_with(')');
  if (named) text.pop_back();
  const char* separator = named ? "; " : " (";
  for (const EndPointDescription::Channel& each : remote_.channels) {
    char number[16];
    std::snprintf(number, sizeof(number), "0x%06x", each.address.qpn);
    text += separator + each.name + " QPN " + number;
    separator = ", ";
  }
  return text + ")";
}

// The end of the endpoint ---------------------------------------------------------------------------------------------

Status EndPointCore::mark_established() {
  connector_->limit_inbox(Connector::kMaxInboxBytes);
  if (!life_.establish()) return status();
  notify_all();
  return {};
}

Status EndPointCore::why_over() const {
  Status ended = status();
  if (!ended) return ended;
  return make_error(Errc::kNotConnected, "the endpoint to " + peer() + " is not established yet");
}

void EndPointCore::check_connection() {
  follow(connector_->check_peer());
}

void EndPointCore::keep_alive(std::chrono::steady_clock::time_point now, std::chrono::milliseconds silent_after) {
  follow(connector_->keep_alive(now, silent_after));
}

void EndPointCore::follow(PeerState peer_state) {
  if (peer_state == PeerState::kOpen) return;
  Error why = connector_->status().error();
  const std::string who = connector_->peer_text();
  if (why.context.starts_with(who)) why.context.replace(0, who.size(), peer());
  if (life_.end(std::move(why), peer_state == PeerState::kClosed)) notify_all();
}

void EndPointCore::notify_all() noexcept {
  if (queue_) queue_->notify();
  for (const auto& entry : entries()) {
    if (entry->queue != queue_) entry->queue->notify();
  }
}

void EndPointCore::fail(const Error& why) {
  const Error full = make_error(why.code, "the endpoint to " + peer() + " has ended: " + why.reason());
  if (!life_.end(full, false)) return;
  connector_->give_up(why);
  notify_all();
}

bool EndPointCore::uses(const ibv_qp* queue_pair) const noexcept {
  return std::ranges::any_of(entries(),
                             [&](const auto& entry) { return entry->channel->adapter().qp() == queue_pair; });
}

bool EndPointCore::uses(const ibv_cq* completion_queue) const noexcept {
  return std::ranges::any_of(entries(), [&](const auto& entry) {
    const AdapterCore& adapter = entry->channel->adapter();
    return adapter.send_cq().get() == completion_queue || adapter.recv_cq().get() == completion_queue;
  });
}

void EndPointCore::stop() noexcept {
  const bool first = life_.stop(worded_if_possible(
      Errc::kStopped, [&] { return make_error(Errc::kStopped, "the endpoint to " + peer() + " was stopped"); }));
  if (!first) return;
  connector_->send_goodbye();
  connector_->shutdown();
  const std::lock_guard lock(error_mutex_);
  for (const auto& entry : entries()) {
    if (entry->channel->adapter().state() == IBV_QPS_ERR) continue;
    const Status stopped = or_out_of_memory([&] { return entry->channel->adapter().to_error(); });
    if (stopped) continue;
    [[maybe_unused]] const Status logged = or_out_of_memory([&] {
      RDMACOMM_LOG(ERROR) << "stopping the endpoint to " << peer() << ": " << stopped.message();
      return Status();
    });
  }
  notify_all();
}

Status EndPointCore::close() {
  stop();
  if (HookScope::on_this_thread()) return {};
  return finish(Deadline::after(kCloseTime));
}

Status EndPointCore::finish(Deadline deadline) {
  if (life_.served_by_this_thread()) return {};
  switch (life_.begin_finish(deadline)) {
    case EndPointLife::Finish::kGone: return {};
    case EndPointLife::Finish::kOtherThread:
      return make_error(Errc::kTimeout, "another thread is still closing the endpoint to " + peer());
    case EndPointLife::Finish::kServed:
      return make_error(
          Errc::kTimeout,
          "a hook of the endpoint to " + peer() +
              ", or of another endpoint on the same thread, has not returned yet, and may still use buffers; call "
              "close() again later");
    case EndPointLife::Finish::kMine: break;
  }
  Status drained = or_out_of_memory([&] { return drain(Deadline::after(kDrainTime)); });
  life_.end_finish(drained.ok());
  return drained;
}

/// Drains the queues that no thread of the session drains.
Status EndPointCore::drain(Deadline deadline) {
  for (const auto& entry : entries()) {
    if (entry->served) continue;
    if (Status begun = begin_drain(*entry->queue); !begun) return begun;
  }
  drop_kept(source_);
  for (const auto& entry : entries()) {
    if (entry->served) continue;
    if (entry->source) drop_kept(*entry->source);
    if (Status done = drain_queue(*entry->queue, deadline); !done) return done;
  }
  return {};
}

void EndPointCore::drop_kept(CompletionSource& source) noexcept {
  while (source.keeps_any()) {
    std::array<Completion, 16> dropped;
    (void)ReceivePool::give_back_unkept(source.take_kept(dropped));
  }
}

Status EndPointCore::drain_queue(CompletionQueue& queue, Deadline deadline) {
  while (!drained(queue)) {
    std::array<Completion, 16> dropped;
    const Polled polled = queue.poll(dropped);
    if (!polled) return make_error(polled.outcome().code(), "cannot drain: the completion queue has failed");
    (void)ReceivePool::give_back_unkept({polled.begin(), polled.end()});
    if (!polled.empty()) continue;
    found_empty(queue);
    if (deadline.passed() && !drained(queue)) {
      return make_error(Errc::kTimeout, "the device did not deliver all completions in time");
    }
    std::this_thread::yield();
  }
  return {};
}

// Serving -------------------------------------------------------------------------------------------------------------

std::vector<std::shared_ptr<CompletionQueue>> EndPointCore::served_queues() const {
  if (!served_elsewhere()) return {};
  std::vector<std::shared_ptr<CompletionQueue>> queues = {queue_};
  for (const auto& entry : entries()) {
    if (entry->served && entry->queue != queue_) queues.push_back(entry->queue);
  }
  return queues;
}

bool EndPointCore::owns(const RDMAChannel* channel, const CompletionQueue& queue) const noexcept {
  return std::ranges::any_of(
      entries(), [&](const auto& entry) { return entry->queue.get() == &queue && entry->channel.get() == channel; });
}

void EndPointCore::mark_announced() {
  life_.announce();
  for (const auto& entry : entries()) {
    if (entry->served && entry->queue != queue_) entry->queue->notify();
  }
}

Status EndPointCore::begin_drain(const CompletionQueue& queue) {
  const std::lock_guard lock(error_mutex_);
  for (const auto& entry : entries()) {
    if (entry->queue.get() != &queue) continue;
    if (Status begun = entry->channel->begin_drain(); !begun) return begun;
  }
  return {};
}

bool EndPointCore::drained(const CompletionQueue& queue) const noexcept {
  return std::ranges::all_of(
      entries(), [&](const auto& entry) { return entry->queue.get() != &queue || entry->channel->drained(); });
}

void EndPointCore::found_empty(const CompletionQueue& queue) noexcept {
  for (const auto& entry : entries()) {
    if (entry->queue.get() == &queue) entry->channel->found_empty();
  }
}

void EndPointCore::end_serving(const CompletionQueue& queue, std::thread::id server) {
  for (const auto& entry : entries()) {
    if (entry->queue.get() != &queue) continue;
    entry->channel->set_server(nullptr);
    entry->queue->detach(*entry->channel);
  }
  life_.end_serving(server);
}

void EndPointCore::detach() {
  for (const auto& entry : entries()) entry->queue->detach(*entry->channel);
}

}  // namespace rdmacomm
