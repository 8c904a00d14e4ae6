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

/// A peer and the connection to it: several channels (queue pairs), found by name, and one more connection, which
/// notices the peer's death. Sessions create endpoints. A handle: copies share the endpoint, and hooks may keep one.
/// The endpoint closes when the last handle is gone.
///
/// Threads   any thread, with two exceptions: poll() and wait() by one thread at a time; close() only while no other
///           thread posts on the channels, polls or waits. To end an endpoint that other threads use, call stop(),
///           which makes their calls fail. The last of these threads then calls close() or drops its handle
/// Lifetime  keeps its device open. Buffers that are posted must live until close() has returned, or until the last
///           handle is gone
class RDMACOMM_API EndPoint : public detail::SharedHandle<EndPointCore> {
 public:
  using SharedHandle::SharedHandle;

  // The channels and the peer -----------------------------------------------------------------------------------

  /// The channel of that name. It lives as long as the endpoint. A name that no channel has is a bug in the program and
  /// ends it. Cost: a search by name; keep the reference.
  [[nodiscard]] RDMAChannel& channel(std::string_view name = kDataChannel) const;
  /// The same; nullptr: no channel has that name.
  [[nodiscard]] RDMAChannel* find_channel(std::string_view name) const noexcept;
  /// All channels, in the order in which they were created.
  [[nodiscard]] std::vector<RDMAChannel*> channels() const;
  /// Creates one more channel of an established endpoint. Both ends call it, in any order, with the same name. `config`
  /// may differ, except in whether it has a device. Several calls may run at a time. On return the channel is connected
  /// on both ends. Post its receives then: messages that the peer sends earlier wait for them
  /// (AdapterConfig::rnr_retry).
  ///
  /// Threads  any thread, except threads that call hooks, which must not wait for the peer
  /// Returns  kInvalidArgument: HcaConfig::validate() of the endpoint with this channel, or the name is taken, also by
  ///          a channel that could not be opened; kNotSupported: rdma_cm connects this endpoint's channels, which must
  ///          then all be in lazy_config_hca(); kPeerRefused: the peer could not create its end (the context has its
  ///          reason); kTimeout: the peer did not call it in time; kNotConnected: not established; status() after the
  ///          end; or the device's error
  [[nodiscard]] Result<RDMAChannel*> open_channel(const ChannelConfig& config, Deadline deadline) const;
  /// A region that the peer has published (HcaConfig::publish()).
  ///
  /// Returns  kIncompatiblePeer: none of that name; the context lists the names that the peer has published
  [[nodiscard]] Result<RemoteRegion> remote_region(std::string_view name) const;
  /// The private_data that the peer has in its HcaConfig. The view is valid while the endpoint lives.
  [[nodiscard]] std::span<const std::byte> peer_private_data() const;
  /// "10.0.0.2:41234". The reference is valid while the endpoint lives.
  [[nodiscard]] const std::string& peer_address() const;
  /// "10.0.0.2:41234 (node7, pid 4711; control QPN 0x000011, data QPN 0x000012)", for messages.
  [[nodiscard]] std::string peer() const;
  /// The configuration from lazy_config_hca(), with a value for each empty field. The reference is valid while the
  /// endpoint lives.
  [[nodiscard]] const HcaConfig& config() const;
  /// The device of the session. A channel may have another one: RDMAChannel::device().
  [[nodiscard]] RDMADevice device() const;
  /// The pool of the channels with pooled_receives; empty: no channel has them.
  [[nodiscard]] ReceivePool receive_pool() const;

  /// Keeps an object of the application with the endpoint, for example state that hooks need for this peer. It is kept
  /// until another set_context(), or as long as the endpoint. Call it in post_connecting(). The object is destroyed
  /// after the queue pairs, so it may own their buffers. It must not contain an EndPoint of this endpoint, because
  /// neither would ever be destroyed: use a WeakEndPoint. set_context<T>(nullptr) removes it.
  ///
  /// Threads  not while another thread calls it or context()
  template <typename T>
  void set_context(std::shared_ptr<T> context) const {
    own_context().set(std::move(context));
  }
  /// The object that set_context() was given. nullptr: none, or its type is not exactly T (a base class of it does not
  /// count). Cost: a comparison.
  template <typename T>
  [[nodiscard]] T* context() const {
    return own_context().get<T>();
  }

  // Barrier and messages, over the connection ------------------------------------------------------------------

  /// A barrier: returns when both ends have called it with the same tag. Unprintable bytes count as '?'. Several threads may wait at
  /// barriers with different tags at a time. Tags that begin with "rdmacomm." are reserved for the library.
  ///
  /// Returns  kTimeout: may be called again with the same tag, to continue waiting; kWrongState: the same, but the peer
  ///          waits at another tag, at which no local thread waits (the context names both); kInvalidArgument: a tag
  ///          of more than 255 bytes; status() after the end
  [[nodiscard]] Status sync_with_peer(std::string_view tag, Deadline deadline) const;
  /// Sends the peer's application a message of up to TCPConnector::kMaxMessageBytes. Returns when the system has taken
  /// the bytes. Only an answer shows that the peer has read them.
  ///
  /// Returns  kInvalidArgument: too long; kTimeout: if a message was sent in part by then, the endpoint ends; status()
  ///          after the end
  [[nodiscard]] Status send_message(std::span<const std::byte> message, Deadline deadline) const;
  /// Waits for the next message that the peer sends by send_message().
  ///
  /// Returns  kTimeout; kPeerClosed, kPeerLost and the like, when all messages from before the end have been received
  [[nodiscard]] Result<std::vector<std::byte>> receive_message(Deadline deadline) const;
  /// Readable, with edge-triggered epoll, when a message may have arrived. The endpoint owns the descriptor.
  [[nodiscard]] int messages_fd() const;

  // Completions; in ThreadMode::kApplication only ---------------------------------------------------------------

  /// Takes up to out.size() completions of all channels (except those with a completion queue of their own), without
  /// blocking, and returns the part of `out` that it filled. After the end it returns the remaining completions, then
  /// nothing: a polling loop must also check alive().
  ///
  /// Errors  kWrongState: a thread of the session polls; kCompletionFailed: the completion queue has failed
  [[nodiscard]] Polled poll(std::span<Completion> out) const noexcept;
  /// Waits for at least one completion, as HcaConfig::polling_mode says, and returns the part of `out` that it filled.
  /// A request that fails is a completion, not an error of this call.
  ///
  /// Errors  kPeerClosed, kPeerLost: the peer has ended the connection in order, or is gone (the context names it and
  ///         says how), and all completions have been taken; kStopped: stop() or close(); any other that status()
  ///         returns; kTimeout; kInvalidArgument: `out` is empty; kNotConnected: it is not established yet; as poll()
  [[nodiscard]] Result<std::span<Completion>> wait(std::span<Completion> out, Deadline deadline) const;
  /// Waits for one completion and returns it. Errors are as for wait().
  [[nodiscard]] Result<Completion> next(Deadline deadline) const;
  /// Like wait(), for a channel with a completion queue of its own (ChannelConfig::own_completion_queue, or device), in
  /// every ThreadMode, unless a thread of the session polls it. One thread at a time for each channel.
  ///
  /// Errors  as wait(); kWrongState also: the channel has no completion queue of its own
  [[nodiscard]] Result<std::span<Completion>> wait(RDMAChannel& channel, std::span<Completion> out,
                                                   Deadline deadline) const;
  /// Waits for one completion of such a channel and returns it. Errors are as for wait() with a channel.
  [[nodiscard]] Result<Completion> next(RDMAChannel& channel, Deadline deadline) const;
  /// Like poll(), for event loops of the application with epoll(7), poll(2) or a framework. PollingMode::kEpoll only.
  /// If it finds nothing, fd() becomes readable when there may be completions, or when the endpoint has ended. So call
  /// it until it finds nothing, sleep on fd(), and call it again. After another wait for this endpoint (for example
  /// PostedRequest::wait() in a handler), call it once more before sleeping, because that wait may have consumed the
  /// wake-up.
  ///
  /// Returns  kNotSupported: another polling mode; or as wait(), without kTimeout
  [[nodiscard]] Result<std::span<Completion>> poll_before_sleep(std::span<Completion> out) const;

  // Waiting; in every ThreadMode --------------------------------------------------------------------------------

  /// The descriptor for poll_before_sleep(); -1: the polling mode is not kEpoll. The endpoint owns the descriptor. It
  /// belongs to the completion queue that the channels share; in ThreadMode::kThreadPerChannel to that of the first
  /// channel.
  [[nodiscard]] int fd() const;
  /// PollingMode::kEpoll only: waits for a descriptor of the application, too, and calls `function` with the events of
  /// epoll_ctl(2) that have occurred. The call is on the thread that waits, when it finds no completions: in wait() and
  /// poll_before_sleep() in ThreadMode::kApplication, else on the thread that calls the hooks (in kThreadPerChannel, on
  /// that of the first channel). `function` must not throw. The caller keeps the ownership of the descriptor.
  ///
  /// Returns  kNotSupported: another polling mode; kInvalidArgument: an empty function; std::errc::file_exists: it is
  ///          watched already; or the error of epoll_ctl(2)
  [[nodiscard]] Status watch(int descriptor, std::uint32_t events,
                             std::function<void(std::uint32_t events)> function) const;
  /// Ends watch() for this descriptor. Call it before closing the descriptor. A call of its function that has begun on
  /// another thread may still run for a short time.
  void unwatch(int descriptor) const noexcept;
  /// How often and how long threads have slept while waiting for this endpoint's completions: the sum over its
  /// completion queues. A queue that is shared with other endpoints has one count for all of them.
  [[nodiscard]] WaitCounts wait_counts() const;
  /// The same for the completion queue of `channel` only. All counts are 0 if `channel` is of another endpoint.
  [[nodiscard]] WaitCounts wait_counts(const RDMAChannel& channel) const;

  // The end of the endpoint -------------------------------------------------------------------------------------

  /// Whether it is established, and neither end has closed it. Cost: one load.
  [[nodiscard]] bool alive() const;
  /// ok until it ends; then the reason: kPeerClosed (in order), kPeerLost, kStopped (stopped locally), or the reason
  /// for which a session or abort() has ended it: kDeviceLost, kHookFailed, ...
  [[nodiscard]] Status status() const;
  /// Whether a heartbeat has arrived from the peer lately; if not, the endpoint ends with kPeerLost. Also sends a
  /// heartbeat. False if the endpoint has ended. Sessions check this themselves (SessionOptions::silent_peer_after);
  /// call this to know it sooner.
  ///
  /// silent_after  how long the peer may have been silent: more than a second, which is the period of heartbeats
  [[nodiscard]] bool check_alive(std::chrono::milliseconds silent_after) const;
  /// Ends it in order: tells the peer, ends all waits with kStopped, and returns at once. Outstanding requests are then
  /// executed or flushed.
  void stop() const noexcept;
  /// Ends it because of a local error: tells the peer the reason, and ends all waits with it. Returns at once. No
  /// effect if the endpoint has ended already.
  void abort(const Error& reason) const;
  /// stop(), and then waits until nothing is outstanding on any channel, so that no buffer is in use any more.
  /// Completions that were not polled by then are dropped in ThreadMode::kApplication. In the other modes the hooks
  /// receive them on their thread (kFlushed for requests that were not executed), and then on_disconnected is called.
  ///
  /// In a hook, of this endpoint or of any other, it only stops and returns ok at once, because hooks never wait for
  /// each other. Buffers are then in use until on_ended; in ThreadMode::kApplication until a later close(), or until
  /// the last handle is gone.
  ///
  /// Returns  kTimeout: the device did not return all completions within kDrainTime, or hooks of this endpoint have not
  ///          returned within kCloseTime. Buffers may then still be in use. close() may be called again; it returns
  ///          kTimeout until nothing is outstanding; kCompletionFailed: a completion queue has failed
  Status close() const;
  static constexpr std::chrono::seconds kDrainTime{2};   ///< how long close() waits for the device
  static constexpr std::chrono::seconds kCloseTime{10};  ///< how long close() waits for hooks that are running

 private:
  [[nodiscard]] Context& own_context() const;
};

/// A reference to an endpoint that does not keep it alive. A value.
///
/// Threads  as for EndPoint
class RDMACOMM_API WeakEndPoint {
 public:
  WeakEndPoint() noexcept = default;  ///< refers to no endpoint: lock() returns an empty handle
  /// Refers to the same endpoint as the handle `endpoint`; to none if that is empty.
  WeakEndPoint(const EndPoint& endpoint) noexcept : core_(endpoint.core()) {}  // NOLINT(google-explicit-constructor)
  /// The endpoint; empty: no EndPoint handle was left.
  [[nodiscard]] EndPoint lock() const noexcept { return core_.lock(); }

 private:
  std::weak_ptr<EndPointCore> core_;
};

}  // namespace rdmacomm
