// endpoint_core.h - the object behind an EndPoint: one peer, its connection and the channels to it.
// Layer: endpoint. Uses: base, verbs, device, connector, channel.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/descriptor_set.h"
#include "channel/channel_core.h"
#include "channel/completion_queue.h"
#include "connector/connector.h"
#include "device/device_core.h"
#include "endpoint/endpoint_description.h"
#include "endpoint/endpoint_life.h"
#include "rdmacomm/completion.h"
#include "rdmacomm/config.h"
#include "rdmacomm/context.h"
#include "rdmacomm/deadline.h"
#include "rdmacomm/endpoint.h"
#include "rdmacomm/qp_address.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

class ChannelInbox;
class ChannelOpening;

class EndPointCore;

/// Starts a thread for one more completion queue of a served endpoint: for channels that are opened later.
class QueueServer {
 public:
  virtual ~QueueServer() = default;
  /// Returns  kStopped: the session was stopped; or as start_thread
  [[nodiscard]] virtual Status serve(const std::shared_ptr<EndPointCore>& endpoint,
                                     const std::shared_ptr<CompletionQueue>& queue) = 0;
};

/// The parts from which an endpoint is created.
struct EndPointParts {
  std::shared_ptr<DeviceCore> device;
  std::shared_ptr<Connector> connector;  ///< after exchange_hello()
  HcaConfig config;
  std::shared_ptr<CompletionQueue> shared_queue = nullptr;  ///< kThreadPerCompletionQueue only
  std::shared_ptr<ReceivePoolCore> receive_pool = nullptr;  ///< if a channel has pooled_receives
  std::shared_ptr<QueueServer> server = nullptr;            ///< if a thread of the session polls
};

/// The object behind an EndPoint, which documents the functions with the same names. Sessions create it. A resource:
/// neither copyable nor movable. Its destructor closes the endpoint.
///
/// Threads: any thread, with two exceptions: poll() and wait() by one thread at a time; close() only while no other
/// thread posts on the channels, polls or waits. To end an endpoint that other threads use, call stop(), which makes
/// their calls fail. The last of these threads then closes or drops it.
/// Lifetime: keeps its device alive. Buffers that are posted must live until close() or the destructor has returned.
class EndPointCore : public std::enable_shared_from_this<EndPointCore> {
 public:
  EndPointCore(const EndPointCore&) = delete;
  EndPointCore& operator=(const EndPointCore&) = delete;
  ~EndPointCore();

  // The channels and the peer -----------------------------------------------------------------------------------

  /// The channel of that name; nullptr: none.
  [[nodiscard]] ChannelCore* channel(std::string_view name) const noexcept;
  /// All channels, in the order in which they were created.
  [[nodiscard]] std::vector<ChannelCore*> channels() const;
  /// As EndPoint::open_channel(). The channel lives as long as the endpoint.
  [[nodiscard]] Result<ChannelCore*> open_channel(const ChannelConfig& config, Deadline deadline);
  /// A region that the peer has published. kIncompatiblePeer: none of that name.
  [[nodiscard]] Result<RemoteRegion> remote_region(std::string_view name) const;
  /// The private_data that the peer has in its HcaConfig. Only after set_peer(): sessions give no endpoint to an
  /// application before that.
  [[nodiscard]] std::span<const std::byte> peer_private_data() const noexcept { return remote_.private_data; }
  /// "10.0.0.2:41234 (node7, pid 4711; control QPN 0x000011, data QPN 0x000012)", for messages.
  [[nodiscard]] std::string peer() const;
  /// The configuration given to create(), fitted to the device.
  [[nodiscard]] const HcaConfig& config() const noexcept { return config_; }
  [[nodiscard]] const std::shared_ptr<DeviceCore>& device() const noexcept { return device_; }
  [[nodiscard]] Connector& connector() const noexcept { return *connector_; }
  /// The pool of the channels with pooled_receives; nullptr: no channel has them.
  [[nodiscard]] const std::shared_ptr<ReceivePoolCore>& receive_pool() const noexcept { return pool_; }

  // The context of the application ------------------------------------------------------------------------------

  [[nodiscard]] Context& context() noexcept { return context_; }

  // Barrier and messages, over the connection ------------------------------------------------------------------

  /// As Connector::sync_with_peer. Tags that begin with "rdmacomm." are reserved for the library.
  [[nodiscard]] Status sync_with_peer(std::string_view tag, Deadline deadline) {
    return connector_->sync_with_peer(tag, deadline);
  }
  /// Sends the peer's application a message of up to kMaxPayloadBytes over the connector. Returns as
  /// Connector::send_message.
  [[nodiscard]] Status send_message(std::span<const std::byte> message, Deadline deadline) {
    return connector_->send_message(MessageType::kUser, message, deadline);
  }
  /// Waits for the next message that the peer sends by send_message(). Returns as Connector::receive_message.
  [[nodiscard]] Result<std::vector<std::byte>> receive_message(Deadline deadline) {
    return connector_->receive_message(MessageType::kUser, deadline);
  }

  // Completions; in ThreadMode::kApplication only ---------------------------------------------------------------

  /// As EndPoint::poll().
  [[nodiscard]] Polled poll(std::span<Completion> out) noexcept;
  /// As EndPoint::wait().
  [[nodiscard]] Result<std::span<Completion>> wait(std::span<Completion> out, Deadline deadline);
  /// As EndPoint::next().
  [[nodiscard]] Result<Completion> next(Deadline deadline);
  /// The same two for a channel with its own completion queue, as in EndPoint.
  [[nodiscard]] Result<std::span<Completion>> wait(ChannelCore& channel, std::span<Completion> out, Deadline deadline);
  [[nodiscard]] Result<Completion> next(ChannelCore& channel, Deadline deadline);
  /// As EndPoint::poll_before_sleep().
  [[nodiscard]] Result<std::span<Completion>> poll_before_sleep(std::span<Completion> out);

  // Waiting; in every ThreadMode --------------------------------------------------------------------------------
  // These functions concern the completion queue that the channels share. If each channel has its own thread and queue
  // (ThreadMode::kThreadPerChannel), fd(), watch() and unwatch() concern the first channel's.

  /// The descriptor for poll_before_sleep(); -1: the polling mode is not kEpoll. The endpoint owns the descriptor.
  [[nodiscard]] int fd() const noexcept { return queue_->waiter().fd(); }
  /// As EndPoint::watch().
  /// Returns  kNotSupported: another polling mode; or as DescriptorSet::add
  [[nodiscard]] Status watch(int descriptor, std::uint32_t events, DescriptorSet::Function function) {
    return queue_->waiter().watch(descriptor, events, std::move(function));
  }
  /// Call it before closing the descriptor. As DescriptorSet::remove.
  void unwatch(int descriptor) noexcept { queue_->waiter().unwatch(descriptor); }
  /// As EndPoint::wait_counts().
  [[nodiscard]] WaitCounts wait_counts() const noexcept;
  /// The same for the completion queue of `channel` only.
  [[nodiscard]] WaitCounts wait_counts(const ChannelCore& channel) const noexcept;

  // The end of the endpoint -------------------------------------------------------------------------------------

  /// Whether it is established, and neither end has closed it. Cost: one load.
  [[nodiscard]] bool alive() const noexcept { return life_.alive(); }
  /// ok until it ends; then the reason: kPeerClosed (in order), kPeerLost, kStopped (stopped locally), or the reason
  /// given to fail(), for example kDeviceLost, kLocalQueuePair, kCompletionFailed.
  [[nodiscard]] Status status() const { return life_.why(); }
  /// As EndPointLife::outcome().
  [[nodiscard]] Status outcome() const { return life_.outcome(); }
  /// Ends it, and does not wait for requests: sends GOODBYE to the peer, moves the queue pairs to ERR (posts then
  /// return kNotConnected) and ends every wait with kStopped. Any thread may call it. With rdma_cm it takes up to 200
  /// ms, until GOODBYE is sent.
  void stop() noexcept;
  /// As EndPoint::close().
  Status close();
  static constexpr std::chrono::seconds kDrainTime{2};
  static constexpr std::chrono::seconds kCloseTime{10};

  // For sessions: setting up --------------------------------------------------------------------------------------

  /// Creates the channels; their queue pairs are in INIT. Returns  as HcaConfig::validate(), DeviceCore::choose_gid,
  /// AdapterCore::create
  [[nodiscard]] static Result<std::shared_ptr<EndPointCore>> create(EndPointParts parts);
  /// The description that the peer needs for its set_peer(). After set_peer() it also names the GID of the peer that
  /// was chosen.
  [[nodiscard]] EndPointDescription description() const;
  /// Takes over the contents of `remote`, the description of the peer. If it names a chosen GID, it is used;
  /// otherwise the GIDs are chosen here (agree_on_gids).
  /// Returns  kIncompatiblePeer: other channel names, or no GIDs that work together (the context has both lists);
  ///          kBadMessage: the peer chose a GID that was not offered
  [[nodiscard]] Status set_peer(EndPointDescription remote);
  /// Connects each queue pair to the remote queue pair of the channel with the same name. After set_peer(). open_more()
  /// connects the channels on other devices.
  ///
  /// deadline  for all of them together, if a connection manager connects them
  /// Returns   as AdapterCore::connect
  [[nodiscard]] Status connect(Deadline deadline);
  /// Creates and connects the channels of config() that are on other devices. After connect(), at both ends.
  /// Returns  as open_channel()
  [[nodiscard]] Status open_more(Deadline deadline);
  /// Both ends have connected and have passed the barrier. Returns  status(), if the endpoint has ended before that.
  [[nodiscard]] Status mark_established();
  /// Whether mark_established() was not called yet, and the endpoint has not ended.
  [[nodiscard]] bool setting_up() const noexcept { return life_.setting_up(); }
  /// Whether it has ended, established or not. Use this instead of `!alive() && !setting_up()`: the state can change
  /// between the two calls.
  [[nodiscard]] bool over() const noexcept { return life_.over(); }
  /// Whether mark_established() was called before the endpoint ended. Stays true after the end.
  [[nodiscard]] bool was_established() const noexcept { return life_.was_established(); }

  /// The part of close() after stop(). It also waits in a hook, because sessions and the destructor report an end only
  /// when nothing is outstanding. On a thread that serves this endpoint it does nothing, because the thread would wait
  /// for itself.
  /// Returns  as close()
  [[nodiscard]] Status finish(Deadline deadline);

  // For sessions: watching and serving ----------------------------------------------------------------------------

  /// Checks whether the peer's connection has ended, and if so ends the waits. Call it when Connector::watched()
  /// reports an event.
  void check_connection();
  /// As Connector::keep_alive(); ends the waits if the peer has been silent for too long.
  void keep_alive(std::chrono::steady_clock::time_point now, std::chrono::milliseconds silent_after);
  /// Ends it for a local reason, such as a lost device: ends the waits with that reason, and tells the peer. No effect
  /// if the endpoint has ended already.
  void fail(const Error& why);
  /// Whether one of its channels uses that queue pair, completion queue or shared receive queue.
  [[nodiscard]] bool uses(const ibv_qp* queue_pair) const noexcept;
  [[nodiscard]] bool uses(const ibv_cq* completion_queue) const noexcept;
  [[nodiscard]] bool uses(const ibv_srq* shared_receive_queue) const noexcept {
    return pool_ && pool_->queue().get() == shared_receive_queue;
  }
  /// The completion queue of all channels without one of their own.
  [[nodiscard]] const std::shared_ptr<CompletionQueue>& queue() const noexcept { return queue_; }
  /// The queues that threads of a session serve, queue() first; none in ThreadMode::kApplication.
  [[nodiscard]] std::vector<std::shared_ptr<CompletionQueue>> served_queues() const;
  /// Whether the channel belongs to this endpoint and its completions go to that queue.
  [[nodiscard]] bool owns(const RDMAChannel* channel, const CompletionQueue& queue) const noexcept;
  /// From now until end_serving(), `server` polls one of its queues, and drains it at the end; close() waits for all
  /// servers.
  void begin_serving(std::thread::id server) { life_.begin_serving(server); }
  /// The number of threads that serve it.
  [[nodiscard]] std::size_t servers() const { return life_.servers(); }
  /// on_established() has returned: the threads of the other queues may call hooks.
  void mark_announced();
  [[nodiscard]] bool announced() const noexcept { return life_.announced(); }
  /// Moves the queue pairs that report to the queue to ERR; their completions then arrive in the queue.
  [[nodiscard]] Status begin_drain(const CompletionQueue& queue);
  [[nodiscard]] bool drained(const CompletionQueue& queue) const noexcept;
  /// A poll of the queue that began after begin_drain() has found nothing.
  void found_empty(const CompletionQueue& queue) noexcept;
  void end_serving(const CompletionQueue& queue, std::thread::id server);

 private:
  struct ChannelEntry;
  /// The completions of one queue, for PostedRequest::wait().
  class Source final : public CompletionSource {
   public:
    /// own  the channel that does not share its queue; nullptr: the queue is queue_
    Source(EndPointCore& endpoint, ChannelEntry* own) noexcept : endpoint_(endpoint), own_(own) {}
    [[nodiscard]] Status over() const override { return endpoint_.status(); }

   private:
    [[nodiscard]] Result<Completion> take_next(Deadline deadline) override;
    void note_kept(bool any) noexcept override;

    EndPointCore& endpoint_;
    ChannelEntry* own_;
  };

  /// A channel, and the queue of its completions.
  struct ChannelEntry {
    std::shared_ptr<DeviceCore> device;
    std::shared_ptr<CompletionQueue> queue;
    std::vector<GidEntry> gids;
    bool served = false;  ///< by a thread of the session
    bool aside =
        false;  ///< wait() has to check more than the queue: the channel is served, or `source` keeps completions
    std::unique_ptr<Source> source;  ///< if it has its own queue
    std::unique_ptr<ChannelCore> channel;
    std::atomic<bool> ready{false};  ///< whether the application may use it
  };

  explicit EndPointCore(EndPointParts parts);
  Status choose_gids();
  [[nodiscard]] Status check_domains() const;
  Status make_channels();
  [[nodiscard]] Result<std::shared_ptr<CompletionQueue>> queue_for(const ChannelConfig& config);
  [[nodiscard]] Result<std::unique_ptr<ChannelEntry>> make_entry(const ChannelConfig& config,
                                                                 std::vector<GidEntry> gids);
  ChannelEntry& add_entry(std::unique_ptr<ChannelEntry> entry);
  [[nodiscard]] std::span<const std::unique_ptr<ChannelEntry>> entries() const noexcept {
    return {entries_.data(), entry_count_.load(std::memory_order_acquire)};
  }
  [[nodiscard]] const ChannelEntry* entry_of(const ChannelCore& channel) const noexcept;
  void notify_all() noexcept;
  // Channels that are opened later: endpoint_channels.cc
  [[nodiscard]] Status check_more(const ChannelConfig& config);
  [[nodiscard]] Result<ChannelCore*> open_one(const ChannelConfig& config, Deadline deadline);
  [[nodiscard]] Result<ChannelEntry*> begin_entry(const ChannelConfig& config);
  [[nodiscard]] static EndPointDescription description_of(const ChannelEntry& entry);
  [[nodiscard]] Result<std::optional<std::size_t>> connect_entry(ChannelEntry& entry, EndPointDescription theirs);
  [[nodiscard]] Status offer_channel(ChannelEntry& entry, ChannelOpening& opening);
  [[nodiscard]] Status answer_channel(ChannelEntry& entry, ChannelOpening& opening);
  struct GidAgreement {
    GidEntry ours;
    std::optional<std::size_t> theirs;  ///< index of the remote GID, if it was chosen here
  };
  Result<GidAgreement> agree_on_gids(const std::vector<GidEntry>& gids, Transport transport,
                                     EndPointDescription& remote) const;
  void follow(PeerState peer_state);
  Status connect_channel(ChannelCore& channel, Deadline deadline);
  [[nodiscard]] bool served_elsewhere() const noexcept { return config_.thread_mode != ThreadMode::kApplication; }
  [[nodiscard]] Result<std::span<Completion>> wait_aside(std::span<Completion> out);
  [[nodiscard]] Error not_waitable() const;
  [[nodiscard]] Error no_room() const;
  [[nodiscard]] Error waited_in_vain() const;
  [[nodiscard]] Error queue_failed(Outcome failed) const;
  [[nodiscard]] Status why_over() const;
  void detach();
  Status drain(Deadline deadline);
  Status drain_queue(CompletionQueue& queue, Deadline deadline);
  void drop_kept(CompletionSource& source) noexcept;
  [[nodiscard]] Result<std::span<Completion>> wait_on(CompletionQueue& queue, std::span<Completion> out,
                                                      Deadline deadline);

  Context context_;  // the first member: destroyed after the queue pairs, which may use buffers in it
  const std::shared_ptr<DeviceCore> device_;
  const std::shared_ptr<Connector> connector_;
  const HcaConfig config_;
  const std::shared_ptr<ReceivePoolCore> pool_;
  const std::shared_ptr<QueueServer> server_;
  std::shared_ptr<CompletionQueue> queue_;
  // The first entry_count_ entries exist, and do not change any more.
  std::array<std::unique_ptr<ChannelEntry>, HcaConfig::kMaxChannels> entries_;
  std::atomic<std::size_t> entry_count_{0};
  Source source_{*this, nullptr};    // of queue_, in ThreadMode::kApplication
  bool aside_ = served_elsewhere();  // poll() and wait() have to check more than the queue; used by the polling thread
  bool queue_taken_ = false;         // in kThreadPerChannel: whether the first channel has queue_
  std::vector<GidEntry> gids_;
  std::optional<std::size_t> chosen_gid_;  // in the peer's list
  EndPointDescription remote_;  // written once, by set_peer(), under mutex_; concurrent threads read it under mutex_
  const std::unique_ptr<ChannelInbox> inbox_;
  std::mutex entries_mutex_;  // for one add_entry() at a time, and for choosing a queue
  std::mutex error_mutex_;    // for one to_error() at a time on the queue pairs

  EndPointLife life_;
  mutable std::mutex mutex_;           // guards names_tried_, and remote_ as said there
  std::set<std::string> names_tried_;  // by open_channel()
};

}  // namespace rdmacomm
