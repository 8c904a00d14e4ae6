// endpoint_core.h - what an EndPoint is a handle of: one peer, its connection and the channels to it.
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
#include "endpoint/endpoint_card.h"
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

/// Starts a thread for a completion queue of an endpoint that is served already: for channels that are opened later.
class QueueServer {
 public:
  virtual ~QueueServer() = default;
  /// Returns  kStopped: the session was; or as start_thread
  [[nodiscard]] virtual Status serve(const std::shared_ptr<EndPointCore>& endpoint,
                                     const std::shared_ptr<CompletionQueue>& queue) = 0;
};

/// What an endpoint is made from.
struct EndPointParts {
  std::shared_ptr<DeviceCore> device;
  std::shared_ptr<Connector> connector;  ///< after exchange_hello()
  HcaConfig config;
  std::shared_ptr<CompletionQueue> shared_queue = nullptr;  ///< kThreadPerCompletionQueue only
  std::shared_ptr<ReceivePoolCore> receive_pool = nullptr;  ///< where a channel has pooled_receives
  std::shared_ptr<QueueServer> server = nullptr;            ///< where a thread of the session polls
};

/// A peer and the way to it: several channels (queue pairs), found by name, and one connection beside them, by which
/// the peer's death is noticed. Sessions make endpoints. A resource: neither copyable nor movable; its destructor
/// closes it.
///
/// Threads: all functions from any thread, but poll() and wait() from one thread at a time, and close() while no other
/// thread posts on the channels, polls or waits. Who must end an endpoint that other threads use calls stop(), which
/// makes their calls fail, and lets the last of them close() (or drop) it.
/// Lifetime: keeps its device alive. Buffers that are posted must live until close() has returned, or until the
/// destructor has.
class EndPointCore : public std::enable_shared_from_this<EndPointCore> {
 public:
  EndPointCore(const EndPointCore&) = delete;
  EndPointCore& operator=(const EndPointCore&) = delete;
  ~EndPointCore();

  // The channels and the peer -----------------------------------------------------------------------------------

  /// The channel of that name; nullptr: there is none.
  [[nodiscard]] ChannelCore* channel(std::string_view name) const noexcept;
  /// All of them, in the order in which they were made.
  [[nodiscard]] std::vector<ChannelCore*> channels() const;
  /// Makes one more channel, of an established endpoint. Both sides call it, in any order, with the same name; `config`
  /// may differ but in whether it has a device. Several may be under way at a time. On return the channel is connected
  /// on both sides: post receives then, for which the peer's messages wait (AdapterConfig::rnr_retry). It lives as long
  /// as the endpoint.
  ///
  /// Threads  any; not one that calls hooks, which must not wait for the peer
  /// Returns  kInvalidArgument: HcaConfig::validate() of the endpoint with this channel, or the name is taken, also by
  ///          one that could not be opened; kNotSupported: rdma_cm connects this endpoint's channels, which are all
  ///          made in lazy_config_hca() then; kPeerRefused: the peer could not make its end (the context has its
  ///          reason); kTimeout: the peer did not call it in time; kNotConnected: not established; status() after the
  ///          end; or as create() and connect()
  [[nodiscard]] Result<ChannelCore*> open_channel(const ChannelConfig& config, Deadline deadline);
  /// A region that the peer has published. kIncompatiblePeer: none of that name.
  [[nodiscard]] Result<RemoteRegion> remote_region(std::string_view name) const;
  /// What the peer's HcaConfig had as private_data.
  /// After set_peer(): sessions give no endpoint to an application before that.
  [[nodiscard]] std::span<const std::byte> peer_private_data() const noexcept { return remote_.private_data; }
  /// "10.0.0.2:41234 (node7, pid 4711; control QPN 0x000011, data QPN 0x000012)", for messages.
  [[nodiscard]] std::string peer() const;
  /// As given to create(), fitted to the device.
  [[nodiscard]] const HcaConfig& config() const noexcept { return config_; }
  [[nodiscard]] const std::shared_ptr<DeviceCore>& device() const noexcept { return device_; }
  [[nodiscard]] Connector& connector() const noexcept { return *connector_; }
  /// Where the channels with pooled_receives take their receives from; nullptr: there are none.
  [[nodiscard]] const std::shared_ptr<ReceivePoolCore>& receive_pool() const noexcept { return pool_; }

  // The application's own --------------------------------------------------------------------------------------

  [[nodiscard]] Context& context() noexcept { return context_; }

  // Beside the channels, by the connector ---------------------------------------------------------------------

  /// As Connector::sync_with_peer. Tags that begin with "rdmacomm." are the library's.
  [[nodiscard]] Status sync_with_peer(std::string_view tag, Deadline deadline) {
    return connector_->sync_with_peer(tag, deadline);
  }
  /// Sends the peer's application a message of up to kMaxPayloadBytes by the connector. Returns as
  /// Connector::send_message.
  [[nodiscard]] Status send_message(std::span<const std::byte> message, Deadline deadline) {
    return connector_->send_message(MessageType::kUser, message, deadline);
  }
  /// Waits for the next message that the peer sends by send_message(). Returns as Connector::receive_message.
  [[nodiscard]] Result<std::vector<std::byte>> receive_message(Deadline deadline) {
    return connector_->receive_message(MessageType::kUser, deadline);
  }

  // Completions; in ThreadMode::kApplication only ---------------------------------------------------------------

  /// Takes up to out.size() completions of all channels (except those with a completion queue of their own), without
  /// blocking, and returns the part of `out` that it filled.
  /// Errors  kWrongState: a thread of the session polls; kCompletionFailed: the completion queue has failed
  [[nodiscard]] Polled poll(std::span<Completion> out) noexcept;
  /// Waits until there is at least one completion, in the way that HcaConfig::polling_mode says, and returns the part
  /// of `out` that it filled. A request that fails is a completion, not an error of this call.
  ///
  /// Errors  kPeerClosed, kPeerLost: the peer has ended the connection in order, or is gone (the context names it and
  ///         says how), and all completions have been taken; kStopped: stop() or close(); any other that status()
  ///         returns; kTimeout; as poll()
  [[nodiscard]] Result<std::span<Completion>> wait(std::span<Completion> out, Deadline deadline);
  /// Waits for one completion and returns it. Errors as wait().
  [[nodiscard]] Result<Completion> next(Deadline deadline);
  /// The same two for a channel with a completion queue of its own (ChannelConfig::own_completion_queue, or device), in
  /// every ThreadMode, unless a thread of the session polls it. One thread at a time for each channel.
  /// Errors  kWrongState also: the channel has none of its own
  [[nodiscard]] Result<std::span<Completion>> wait(ChannelCore& channel, std::span<Completion> out, Deadline deadline);
  [[nodiscard]] Result<Completion> next(ChannelCore& channel, Deadline deadline);
  /// For loops of the application's own, by epoll(7), poll(2) or a framework; PollingMode::kEpoll only. As poll(); when
  /// it finds nothing, fd() becomes readable once there may be completions or the endpoint has ended. So: call it until
  /// it finds nothing, sleep on fd(), and call it again. After another wait for this endpoint (PostedRequest::wait() in a
  /// handler, for example), call it once more before sleeping: that wait may have used the wake-up.
  ///
  /// Returns  kNotSupported: another polling mode; or as wait(), but for kTimeout
  [[nodiscard]] Result<std::span<Completion>> poll_before_sleep(std::span<Completion> out);

  // Waiting; in every ThreadMode --------------------------------------------------------------------------------
  // What wait() waits for: the completion queue that the channels share. Where each channel has a thread and a queue of
  // its own (ThreadMode::kThreadPerChannel), fd(), watch() and unwatch() are about the first channel's.

  /// The descriptor for poll_before_sleep(); -1: the polling mode is not kEpoll. It stays the endpoint's.
  [[nodiscard]] int fd() const noexcept { return queue_->waiter().fd(); }
  /// PollingMode::kEpoll only: waits for a descriptor of the application's, too, and calls `function` with the events
  /// of epoll_ctl(2) that have come, on the thread that waits (ThreadMode::kApplication: in wait() and
  /// poll_before_sleep(); else the one that calls the hooks), when there are no completions to be taken. `function`
  /// must not throw.
  /// Returns  kNotSupported: another polling mode; or as DescriptorSet::add
  [[nodiscard]] Status watch(int descriptor, std::uint32_t events, DescriptorSet::Function function) {
    return queue_->waiter().watch(descriptor, events, std::move(function));
  }
  /// To be called before the descriptor is closed. As DescriptorSet::remove.
  void unwatch(int descriptor) noexcept { queue_->waiter().unwatch(descriptor); }
  /// How often and how long whoever waits for this endpoint's completions has slept: of all its completion queues
  /// together. One that is shared with other endpoints has one count for all.
  [[nodiscard]] WaitCounts wait_counts() const noexcept;
  /// The same of the completion queue of this endpoint's `channel` alone.
  [[nodiscard]] WaitCounts wait_counts(const ChannelCore& channel) const noexcept;

  // Its end -----------------------------------------------------------------------------------------------------

  /// Whether it is established, and neither side has ended it. Cost: one load.
  [[nodiscard]] bool alive() const noexcept { return life_.alive(); }
  /// ok until it ends; then why: kPeerClosed (in order), kPeerLost, kStopped (by this side), or what a session
  /// has heard from the device: kDeviceLost, kLocalQueuePair, kCompletionFailed.
  [[nodiscard]] Status status() const { return life_.why(); }
  /// As EndPointLife::outcome().
  [[nodiscard]] Status outcome() const { return life_.outcome(); }
  /// Ends it, from any thread, without waiting for anything to finish: says goodbye to the peer, moves the queue
  /// pairs to ERR (posts return kNotConnected from then on) and ends every wait with kStopped. Connected by rdma_cm, up
  /// to 200 ms until the goodbye has left.
  void stop() noexcept;
  /// stop(), and then waits until nothing is outstanding on any channel, so that no buffer is in use any more.
  /// Completions that were not polled by then are dropped in ThreadMode::kApplication; in the others the hooks get
  /// them (kFlushed what was not executed) on their thread, followed by on_disconnected.
  ///
  /// Called by a hook, of this endpoint or of any other, it only stops and returns ok at once: hooks never wait for
  /// each other. Buffers are then in use until on_ended, in ThreadMode::kApplication until a later close() or the
  /// destructor.
  /// Returns  kTimeout: the device did not hand all completions out within kDrainTime, or hooks of this endpoint have
  ///          not returned within kCloseTime. Buffers may be in use then; close() may be called again, and says so
  ///          again until nothing is outstanding
  Status close();
  static constexpr std::chrono::seconds kDrainTime{2};
  static constexpr std::chrono::seconds kCloseTime{10};

  // For sessions: setting up --------------------------------------------------------------------------------------

  /// Makes the channels; their queue pairs are in INIT. Returns  as HcaConfig::validate(), DeviceCore::choose_gid,
  /// AdapterCore::create
  [[nodiscard]] static Result<std::shared_ptr<EndPointCore>> create(EndPointParts parts);
  /// What the peer needs for its set_peer(). After set_peer() it also says which of the peer's GIDs was chosen.
  [[nodiscard]] EndPointCard card() const;
  /// Takes in what the peer's card() says. The GIDs are those that the peer's card chose; where it did not choose, this
  /// side does (agree_on_gids).
  /// Returns  kIncompatiblePeer: other channel names, or no GIDs that work together (the context has both lists);
  ///          kBadMessage: the peer chose a GID that was not offered
  [[nodiscard]] Status set_peer(EndPointCard remote);
  /// Connects each queue pair to the peer's of the same name. After set_peer(). Those on devices of their own follow by
  /// open_more().
  ///
  /// deadline  for all of them together, where a connection manager connects them
  /// Returns   as AdapterCore::connect
  [[nodiscard]] Status connect(Deadline deadline);
  /// Makes and connects the channels of config() that are on devices of their own. After connect(), on both sides.
  /// Returns  as open_channel()
  [[nodiscard]] Status open_more(Deadline deadline);
  /// Both sides have connected and met. Returns  status(), where the endpoint has ended before that.
  [[nodiscard]] Status mark_established();
  /// Whether mark_established() has not been called, and the endpoint has not ended before that.
  [[nodiscard]] bool setting_up() const noexcept { return life_.setting_up(); }
  /// Whether it has ended, established or not. Use this, and not !alive() && !setting_up(): the state may change between
  /// those two calls.
  [[nodiscard]] bool over() const noexcept { return life_.over(); }
  /// Whether mark_established() was called in time, whatever has become of the endpoint since.
  [[nodiscard]] bool was_established() const noexcept { return life_.was_established(); }

  /// What close() does after stop(), in a hook too: sessions and the destructor report an end only when nothing is
  /// outstanding. On a thread that serves this endpoint, which would wait for itself, it does nothing.
  /// Returns  as close()
  [[nodiscard]] Status finish(Deadline deadline);

  // For sessions: watching and serving ----------------------------------------------------------------------------

  /// Looks whether the peer's connection has ended, and if so ends the waits. To be called when Connector::watched()
  /// says so.
  void check_connection();
  /// As Connector::keep_alive(); ends the waits where the peer has been silent for too long.
  void keep_alive(std::chrono::steady_clock::time_point now, std::chrono::milliseconds silent_after);
  /// Ends it for a reason of this side's, such as a device that is lost: ends the waits with it, and tells the peer.
  /// Without effect where it has ended already.
  void fail(const Error& why);
  /// Whether one of its channels is on that queue pair, or completion queue, or takes receives from that shared one.
  [[nodiscard]] bool uses(const ibv_qp* queue_pair) const noexcept;
  [[nodiscard]] bool uses(const ibv_cq* completion_queue) const noexcept;
  [[nodiscard]] bool uses(const ibv_srq* shared_receive_queue) const noexcept {
    return pool_ && pool_->queue().get() == shared_receive_queue;
  }
  /// The completion queue of all channels that have none of their own.
  [[nodiscard]] const std::shared_ptr<CompletionQueue>& queue() const noexcept { return queue_; }
  /// The queues that threads of a session serve, queue() first; none in ThreadMode::kApplication.
  [[nodiscard]] std::vector<std::shared_ptr<CompletionQueue>> served_queues() const;
  /// Whether the channel is one of its own, with its completions in that queue.
  [[nodiscard]] bool owns(const RDMAChannel* channel, const CompletionQueue& queue) const noexcept;
  /// From now until end_serving(), `server` polls one of its queues and will drain; close() waits for all of them.
  void begin_serving(std::thread::id server) { life_.begin_serving(server); }
  /// How many do.
  [[nodiscard]] std::size_t servers() const { return life_.servers(); }
  /// on_established() has returned: the threads of the other queues may call hooks.
  void mark_announced();
  [[nodiscard]] bool announced() const noexcept { return life_.announced(); }
  /// Moves the queue pairs that report to the queue to ERR; their completions then come out of it.
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
    /// own  the channel that has the queue to itself; nullptr: it is queue_
    Source(EndPointCore& endpoint, ChannelEntry* own) noexcept : endpoint_(endpoint), own_(own) {}
    [[nodiscard]] Status over() const override { return endpoint_.status(); }

   private:
    [[nodiscard]] Result<Completion> take_next(Deadline deadline) override;
    void note_kept(bool any) noexcept override;

    EndPointCore& endpoint_;
    ChannelEntry* own_;
  };

  /// A channel, and where its completions go.
  struct ChannelEntry {
    std::shared_ptr<DeviceCore> device;
    std::shared_ptr<CompletionQueue> queue;
    std::vector<GidEntry> gids;
    bool served = false;  ///< by a thread of the session
    bool aside = false;   ///< wait() must look at what else there is: it is served, or `source` keeps completions
    std::unique_ptr<Source> source;  ///< of a queue of its own
    std::unique_ptr<ChannelCore> channel;
    std::atomic<bool> ready{false};  ///< the application may have it
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
  [[nodiscard]] static EndPointCard card_of(const ChannelEntry& entry);
  [[nodiscard]] Result<std::optional<std::size_t>> connect_entry(ChannelEntry& entry, EndPointCard theirs);
  [[nodiscard]] Status offer_channel(ChannelEntry& entry, ChannelOpening& opening);
  [[nodiscard]] Status answer_channel(ChannelEntry& entry, ChannelOpening& opening);
  struct GidAgreement {
    GidEntry ours;
    std::optional<std::size_t> theirs;  ///< where this side has chosen
  };
  Result<GidAgreement> agree_on_gids(const std::vector<GidEntry>& gids, Transport transport,
                                     EndPointCard& remote) const;
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

  Context context_;  // the first, so that it goes after the queue pairs that may use buffers in it
  const std::shared_ptr<DeviceCore> device_;
  const std::shared_ptr<Connector> connector_;
  const HcaConfig config_;
  const std::shared_ptr<ReceivePoolCore> pool_;
  const std::shared_ptr<QueueServer> server_;
  std::shared_ptr<CompletionQueue> queue_;
  // The first entry_count_ are there, and stay as they are.
  std::array<std::unique_ptr<ChannelEntry>, HcaConfig::kMaxChannels> entries_;
  std::atomic<std::size_t> entry_count_{0};
  Source source_{*this, nullptr};    // of queue_, in ThreadMode::kApplication
  bool aside_ = served_elsewhere();  // poll() and wait() must look at what else there is; the polling thread's
  bool queue_taken_ = false;         // in kThreadPerChannel, by its first channel
  std::vector<GidEntry> gids_;
  std::optional<std::size_t> chosen_gid_;  // of the peer's
  EndPointCard
      remote_;  // written once, by set_peer(), under mutex_; threads that may run at the same time read it under mutex_
  const std::unique_ptr<ChannelInbox> inbox_;
  std::mutex entries_mutex_;  // one add_entry() at a time, and choice of a queue
  std::mutex error_mutex_;    // one to_error() at a time on the queue pairs

  EndPointLife life_;
  mutable std::mutex mutex_;           // guards what follows
  std::set<std::string> names_tried_;  // by open_channel()
};

}  // namespace rdmacomm
