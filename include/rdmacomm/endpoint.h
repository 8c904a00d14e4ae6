// endpoint.h - one peer: its connection and the named channels to it.
// Layer: endpoint. Uses: base, adapter, connector, channel.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rdmacomm/channel.h"
#include "rdmacomm/completion.h"
#include "rdmacomm/config.h"
#include "rdmacomm/connector.h"
#include "rdmacomm/context.h"
#include "rdmacomm/deadline.h"
#include "rdmacomm/handle.h"
#include "rdmacomm/polling.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

class RDMACOMM_API EndPointCore;
template <>
inline constexpr const char* detail::kHandleName<EndPointCore> = "EndPoint";

/// A peer and the way to it: several channels (queue pairs), found by name, and one connection beside them, by which
/// the peer's death is noticed. Sessions make endpoints. A handle: copies share the endpoint, and hooks may keep one.
/// The endpoint closes when the last handle is gone.
///
/// Threads   all functions from any thread, but poll() and wait() from one thread at a time, and close() while no other
///           thread posts on the channels, polls or waits. A thread that must end an endpoint which other threads use
///           calls stop(), which makes their calls fail, and lets the last of them call close() (or drop its handle)
/// Lifetime  keeps its device open. Buffers that are posted must live until close() has returned, or until the last
///           handle is gone
class RDMACOMM_API EndPoint : public detail::SharedHandle<EndPointCore> {
 public:
  using SharedHandle::SharedHandle;

  // The channels and the peer -----------------------------------------------------------------------------------

  /// The channel of that name. It lives as long as the endpoint. A name that no channel has is a mistake of the
  /// program, and ends it. Cost: a search by name; keep the reference.
  [[nodiscard]] RDMAChannel& channel(std::string_view name = kDataChannel) const;
  /// The same; nullptr: there is none of that name.
  [[nodiscard]] RDMAChannel* find_channel(std::string_view name) const noexcept;
  /// All of them, in the order in which they were made.
  [[nodiscard]] std::vector<RDMAChannel*> channels() const;
  /// Makes one more channel, of an established endpoint. Both sides call it, in any order, with the same name; `config`
  /// may differ, except in whether it has a device. Several may be under way at a time. On return the channel is
  /// connected on both sides: post receives then, for which the peer's messages wait (AdapterConfig::rnr_retry).
  ///
  /// Threads  any; not one that calls hooks, which must not wait for the peer
  /// Returns  kInvalidArgument: HcaConfig::validate() of the endpoint with this channel, or the name is taken, also by
  ///          one that could not be opened; kNotSupported: rdma_cm connects this endpoint's channels, which are all
  ///          made in lazy_config_hca() then; kPeerRefused: the peer could not make its end (the context has its
  ///          reason); kTimeout: the peer did not call it in time; kNotConnected: not established; status() after the
  ///          end; or what the device said
  [[nodiscard]] Result<RDMAChannel*> open_channel(const ChannelConfig& config, Deadline deadline) const;
  /// A region that the peer has published (HcaConfig::publish()).
  /// Returns  kIncompatiblePeer: none of that name; the context lists those that it has
  [[nodiscard]] Result<RemoteRegion> remote_region(std::string_view name) const;
  /// What the peer's HcaConfig had as private_data.
  [[nodiscard]] std::span<const std::byte> peer_private_data() const;
  /// "10.0.0.2:41234".
  [[nodiscard]] const std::string& peer_address() const;
  /// "10.0.0.2:41234 (node7, pid 4711; control QPN 0x000011, data QPN 0x000012)", for messages.
  [[nodiscard]] std::string peer() const;
  /// As lazy_config_hca() has made it, with everything that was left empty filled in.
  [[nodiscard]] const HcaConfig& config() const;
  [[nodiscard]] RDMADevice device() const;
  /// Where the channels with pooled_receives take their receives from; empty: there are none.
  [[nodiscard]] ReceivePool receive_pool() const;

  /// Keeps something of the application's with the endpoint, as long as it or until another set_context(): what hooks
  /// need for this peer. post_connecting() is the place to call it. It goes after the queue pairs, so it may have their
  /// buffers. It must not have an EndPoint of this endpoint, as neither would ever go then: a WeakEndPoint may be in
  /// it. set_context<T>(nullptr) removes it. Threads: not while another thread calls it or context()
  template <typename T>
  void set_context(std::shared_ptr<T> context) const {
    own_context().set(std::move(context));
  }
  /// What set_context() was given; nullptr: nothing, or something of another type than exactly T, a base of it too.
  /// Cost: a comparison.
  template <typename T>
  [[nodiscard]] T* context() const {
    return own_context().get<T>();
  }

  // Beside the channels, by the connection ----------------------------------------------------------------------

  /// A barrier: returns when both sides have called it with the same tag, at most 255 bytes. Several threads may be at
  /// barriers with different tags at a time. Tags that begin with "rdmacomm." are the library's.
  /// Returns  kTimeout: may be called again with the same tag, to go on waiting; kWrongState: the same, and the peer
  ///          waits at another tag, where nobody waits here (the context names both); status() after the end
  [[nodiscard]] Status sync_with_peer(std::string_view tag, Deadline deadline) const;
  /// Sends the peer's application a message of up to TCPConnector::kMaxMessageBytes. Returns when the system has taken
  /// the bytes: that the peer has read them, only an answer can tell.
  /// Returns  kInvalidArgument: too long; kTimeout: a message that was sent in part by then ends the endpoint; status()
  ///          after the end
  [[nodiscard]] Status send_message(std::span<const std::byte> message, Deadline deadline) const;
  /// Waits for the next message that the peer sends by send_message().
  /// Returns  kTimeout; kPeerClosed, kPeerLost and the like when all that came before the end has been received
  [[nodiscard]] Result<std::vector<std::byte>> receive_message(Deadline deadline) const;
  /// Readable, by edge-triggered epoll, when a message may have come. It stays the endpoint's.
  [[nodiscard]] int messages_fd() const;

  // Completions; in ThreadMode::kApplication only ---------------------------------------------------------------

  /// Takes up to out.size() completions of all channels (except those with a completion queue of their own), without
  /// blocking, and returns the part of `out` that it filled. After the end it goes on to return what is left, and then
  /// nothing: a loop that polls asks alive(), too.
  /// Errors  kWrongState: a thread of the session polls; kCompletionFailed: the completion queue has failed
  [[nodiscard]] Polled poll(std::span<Completion> out) const noexcept;
  /// Waits until there is at least one completion, in the way that HcaConfig::polling_mode says, and returns the part
  /// of `out` that it filled. A request that fails is a completion, not an error of this call.
  ///
  /// Errors  kPeerClosed, kPeerLost: the peer has ended the connection in order, or is gone (the context names it and
  ///         says how), and all completions have been taken; kStopped: stop() or close(); any other that status()
  ///         returns; kTimeout; as poll()
  [[nodiscard]] Result<std::span<Completion>> wait(std::span<Completion> out, Deadline deadline) const;
  /// Waits for one completion and returns it. Errors as wait().
  [[nodiscard]] Result<Completion> next(Deadline deadline) const;
  /// The same two for a channel with a completion queue of its own (ChannelConfig::own_completion_queue, or device), in
  /// every ThreadMode, unless a thread of the session polls it. One thread at a time for each channel.
  /// Errors  kWrongState also: the channel has none of its own
  [[nodiscard]] Result<std::span<Completion>> wait(RDMAChannel& channel, std::span<Completion> out,
                                                   Deadline deadline) const;
  [[nodiscard]] Result<Completion> next(RDMAChannel& channel, Deadline deadline) const;
  /// For loops of the application's own, by epoll(7), poll(2) or a framework; PollingMode::kEpoll only. As poll(); when
  /// it finds nothing, fd() becomes readable once there may be completions or the endpoint has ended. So: call it until
  /// it finds nothing, sleep on fd(), and call it again. After another wait for this endpoint (for example
  /// PostedRequest::wait() in a handler), call it once more before sleeping: that wait may have used the wake-up.
  ///
  /// Returns  kNotSupported: another polling mode; or as wait(), without kTimeout
  [[nodiscard]] Result<std::span<Completion>> poll_before_sleep(std::span<Completion> out) const;

  // Waiting; in every ThreadMode --------------------------------------------------------------------------------
  // What wait() waits for: the completion queue that the channels share. If each channel has a thread and a queue of
  // its own (ThreadMode::kThreadPerChannel), fd(), watch() and unwatch() are about the first channel's.

  /// The descriptor for poll_before_sleep(); -1: the polling mode is not kEpoll. It stays the endpoint's.
  [[nodiscard]] int fd() const;
  /// PollingMode::kEpoll only: waits for a descriptor of the application's, too, and calls `function` with the events
  /// of epoll_ctl(2) that have come, on the thread that waits (ThreadMode::kApplication: in wait() and
  /// poll_before_sleep(); else the one that calls the hooks), when there are no completions to be taken. `function`
  /// must not throw. The descriptor stays the caller's.
  /// Returns  kNotSupported: another polling mode; kInvalidArgument: an empty function; std::errc::file_exists: it is
  ///          watched already; or what epoll_ctl(2) says
  [[nodiscard]] Status watch(int descriptor, std::uint32_t events,
                             std::function<void(std::uint32_t events)> function) const;
  /// To be called before the descriptor is closed. A call of its function that has begun on another thread may go on
  /// for a moment.
  void unwatch(int descriptor) const noexcept;
  /// How often and how long threads that wait for this endpoint's completions have slept: the sum of its completion
  /// queues. A queue that is shared with other endpoints has one count for all.
  [[nodiscard]] WaitCounts wait_counts() const;
  /// The same of the completion queue of this endpoint's `channel` alone.
  [[nodiscard]] WaitCounts wait_counts(const RDMAChannel& channel) const;

  // Its end -----------------------------------------------------------------------------------------------------

  /// Whether it is established, and neither side has ended it. Cost: one load.
  [[nodiscard]] bool alive() const;
  /// ok until it ends; then why: kPeerClosed (in order), kPeerLost, kStopped (by this side), or what a session
  /// or abort() has ended it with: kDeviceLost, kHookFailed, ...
  [[nodiscard]] Status status() const;
  /// Whether a heartbeat has come from the peer lately; if not, the endpoint ends with kPeerLost. Sessions look by
  /// themselves (SessionOptions::silent_peer_after); call this to know it sooner.
  ///
  /// silent_after  how long the peer may have been silent: more than a second, which is the period of heartbeats
  [[nodiscard]] bool check_alive(std::chrono::milliseconds silent_after) const;
  /// Ends it in order: tells the peer, ends all waits with kStopped, and returns at once. Requests that are outstanding
  /// are then executed or flushed.
  void stop() const noexcept;
  /// Ends it because of an error of this side's: the peer is told the reason, all waits end with it. Returns at once.
  /// Without effect if it has ended already.
  void abort(const Error& reason) const;
  /// stop(), and then waits until nothing is outstanding on any channel, so that no buffer is in use any more.
  /// Completions that were not polled by then are dropped in ThreadMode::kApplication; in the others the hooks get
  /// them (kFlushed what was not executed) on their thread, followed by on_disconnected.
  ///
  /// Called by a hook, of this endpoint or of any other, it only stops and returns ok at once: hooks never wait for
  /// each other. Buffers are then in use until on_ended, in ThreadMode::kApplication until a later close(), or until
  /// the last handle is gone.
  /// Returns  kTimeout: the device did not hand all completions out within kDrainTime, or hooks of this endpoint have
  ///          not returned within kCloseTime. Buffers may be in use then; close() may be called again, and says so
  ///          again until nothing is outstanding
  Status close() const;
  static constexpr std::chrono::seconds kDrainTime{2};
  static constexpr std::chrono::seconds kCloseTime{10};

 private:
  [[nodiscard]] Context& own_context() const;
};

/// An endpoint that this does not keep: for those that may outlive it. A value. Threads: as for EndPoint
class RDMACOMM_API WeakEndPoint {
 public:
  WeakEndPoint() noexcept = default;
  WeakEndPoint(const EndPoint& endpoint) noexcept : core_(endpoint.core()) {}  // NOLINT(google-explicit-constructor)
  /// The endpoint; empty: nobody has kept it.
  [[nodiscard]] EndPoint lock() const noexcept { return core_.lock(); }

 private:
  std::weak_ptr<EndPointCore> core_;
};

}  // namespace rdmacomm
