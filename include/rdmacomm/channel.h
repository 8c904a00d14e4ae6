// channel.h - the verbs operations on one connected queue pair.
// Layer: channel. Uses: base, verbs, device, memory, adapter.   See docs/architecture.md "One write through every
// layer".
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "rdmacomm/adapter.h"
#include "rdmacomm/buffer.h"
#include "rdmacomm/completion.h"
#include "rdmacomm/context.h"
#include "rdmacomm/deadline.h"
#include "rdmacomm/device.h"
#include "rdmacomm/qp_address.h"
#include "rdmacomm/remote_region.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

class ReceivePool;

/// The slices of one request: a single slice, or any contiguous list of them. A view: it does not own the slices. Meant
/// as the argument of a function.
class RDMACOMM_API SliceList {
 public:
  SliceList() = default;  ///< no bytes
  /// One slice, which must exist as long as the view.
  SliceList(const BufferSlice& one) : list_(&one, 1) {}  // NOLINT(google-explicit-constructor)
  /// An array, a vector, a span or another contiguous list of slices, which must exist as long as the view.
  template <std::convertible_to<std::span<const BufferSlice>> Slices>
  SliceList(const Slices& list) : list_(list) {}  // NOLINT(google-explicit-constructor)

  /// The slices in their order. Owned by the caller, not by the view.
  [[nodiscard]] std::span<const BufferSlice> slices() const noexcept { return list_; }

 private:
  std::span<const BufferSlice> list_;
};

/// Like SliceList, for a view that is kept for a while: the slices must be named objects and outlive the view.
class RDMACOMM_API SliceView {
 public:
  SliceView() = default;  ///< no bytes
  /// One slice: a named object, which must outlive the view.
  SliceView(const BufferSlice& one) : list_(&one, 1) {}  // NOLINT(google-explicit-constructor)
  /// Does not compile: a temporary slice would not outlive the view.
  SliceView(const BufferSlice&& temporary) = delete;
  /// A contiguous list of slices, which must outlive the view: a named array or vector, or any span.
  template <typename Slices>
  requires std::convertible_to<Slices&&, std::span<const BufferSlice>> &&
      (std::is_lvalue_reference_v<Slices> || std::ranges::borrowed_range<Slices>)SliceView(Slices&& list)
      : list_(list) {}  // NOLINT(google-explicit-constructor)

  /// The slices in their order. Owned by the caller, not by the view.
  [[nodiscard]] std::span<const BufferSlice> slices() const noexcept { return list_; }

 private:
  std::span<const BufferSlice> list_;
};

/// Flags of a send-side request. Combine with |. The values are those of IBV_SEND_*, except that kUnsignaled has the
/// value of IBV_SEND_SIGNALED and means its opposite.
enum class PostFlags : std::uint8_t {
  kNone = 0,        ///< no flag: the request completes once, when it has succeeded or failed
  kFence = 1,       ///< starts after all earlier READs and atomics of this channel are complete
  kUnsignaled = 2,  ///< no completion on success; a later completion frees its place. See RDMAChannel
  kSolicited = 4,   ///< SEND and WRITE_WITH_IMM: wakes a peer that waits for solicited completions only
  kInline = 8,      ///< the payload is copied now and may be overwritten at once; at most max_inline_bytes()
};
/// All flags of `a` and of `b`.
[[nodiscard]] constexpr PostFlags operator|(PostFlags a, PostFlags b) noexcept {
  return static_cast<PostFlags>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}
/// Whether `flags` has `flag`. If `flag` is several flags, one of them is enough.
[[nodiscard]] constexpr bool has(PostFlags flags, PostFlags flag) noexcept {
  return (static_cast<std::uint8_t>(flags) & static_cast<std::uint8_t>(flag)) != 0;
}

/// 32 bits that a SEND or WRITE carries to the peer's completion, in host byte order. A value; empty by default, and 0
/// is not empty. Made from integers of at most 32 bits. A longer integer, for example a request's id, does not convert.
class RDMACOMM_API Immediate {
 public:
  constexpr Immediate() noexcept = default;  ///< empty: the request has no immediate
  /// `value`, also 0, as 32 bits without a sign: -1 arrives as 0xffffffff.
  template <std::integral Number>
  requires(sizeof(Number) <= sizeof(std::uint32_t) && !std::same_as<Number, bool>) constexpr Immediate(
      Number value) noexcept  // NOLINT(google-explicit-constructor)
      : value_(static_cast<std::uint32_t>(value)), given_(true) {}
  [[nodiscard]] constexpr bool given() const noexcept { return given_; }           ///< whether it is not empty
  [[nodiscard]] constexpr std::uint32_t value() const noexcept { return value_; }  ///< the 32 bits; 0 if it is empty

 private:
  std::uint32_t value_ = 0;
  bool given_ = false;
};

namespace detail {
/// First member of an aggregate whose members must be named in `{...}`: neither a number nor `{}` converts to it.
struct RDMACOMM_API ByName {
  explicit ByName() = default;
};
enum class RequestFault : std::uint8_t;
}  // namespace detail

/// Options of every function that posts to the send queue, by name: `{.id = 7, .immediate = 42}`. A value of 16 bytes,
/// so that it is passed in registers.
struct RDMACOMM_API PostOptions {
  [[no_unique_address]] detail::ByName by_name{};  ///< do not set: `{7, 42}` must not compile
  std::uint64_t id = 0;                            ///< returned in Completion::id
  [[no_unique_address]] Immediate immediate{};     ///< SEND and WRITE; makes it a SEND_WITH_IMM or WRITE_WITH_IMM
  PostFlags flags = PostFlags::kNone;              ///< fence, unsignaled, solicited, inline
};
static_assert(sizeof(PostOptions) == 16);

/// Options of a receive, by name.
struct RDMACOMM_API RecvOptions {
  [[no_unique_address]] detail::ByName by_name{};  ///< do not set
  std::uint64_t id = 0;                            ///< returned in Completion::id
};

/// The operand of post_fetch_add().
struct RDMACOMM_API FetchAdd {
  [[no_unique_address]] detail::ByName by_name{};  ///< do not set
  std::uint64_t addend = 0;                        ///< added to the remote value, in host byte order
};
/// The operands of post_compare_swap().
struct RDMACOMM_API CompareSwap {
  [[no_unique_address]] detail::ByName by_name{};  ///< do not set
  std::uint64_t expected = 0;                      ///< the remote value is replaced only if it equals this
  std::uint64_t desired = 0;                       ///< the value that replaces it
};

/// One send-side request, for post_chain(). Its members must be named, too.
struct RDMACOMM_API SendRequest {
  [[no_unique_address]] detail::ByName by_name{};  ///< do not set
  Operation operation = Operation::kSend;          ///< kSend, kWrite, kRead, kFetchAdd or kCompareSwap
  SliceView local{};                               ///< the slices must live until post_chain() returns
  RemoteRegion remote{};                           ///< for WRITE, READ and atomics; ignored for SEND
  PostOptions options{};                           ///< as for the post function of the operation
  FetchAdd fetch_add{};                            ///< kFetchAdd; else 0
  CompareSwap compare_swap{};                      ///< kCompareSwap; else 0
};

/// The result of post_chain(). A value.
struct [[nodiscard]] RDMACOMM_API PostedChain {
  std::size_t count = 0;  ///< number of requests that were accepted, from the first one on
  Outcome outcome{};      ///< why the next request was refused; ok: all were accepted

  [[nodiscard]] bool ok() const noexcept { return outcome.ok(); }  ///< whether all requests were accepted
  explicit operator bool() const noexcept { return ok(); }         ///< ok()
};

/// A request that RDMAChannel::write() or a similar function has posted. wait() waits for its completion. A value; use
/// it only while its channel lives. The buffers of the request belong to the channel until its completion was taken.
class [[nodiscard]] RDMACOMM_API PostedRequest {
 public:
  /// Whether the request was accepted. If not, nothing was posted, and wait() returns the reason with the numbers.
  [[nodiscard]] Outcome posted() const noexcept { return outcome_; }
  /// Waits for the completion of this request, as EndPoint::next() does. Completions of other requests that arrive
  /// earlier are kept in order: the next poll or wait returns them, and so does wait() of their PostedRequest.
  ///
  /// Threads  the thread that may call EndPoint::poll() and wait()
  /// Returns  the completion, if the request was executed; Completion::status(), if it failed; the endpoint's status(),
  ///          if it was flushed or ran out of retries because the endpoint had ended; the error of the post, if it was
  ///          refused
  /// Errors   kTimeout: the request is outstanding, and may be waited for again; kWrongState: a thread of the session
  ///          takes the completions (HcaConfig::thread_mode), or this completion was taken already (after the
  ///          endpoint's end, its status() instead); std::errc::not_enough_memory; otherwise as EndPoint::next()
  [[nodiscard]] Result<Completion> wait(Deadline deadline) const;

 private:
  friend class RDMAChannel;
  friend class ChannelCore;
  PostedRequest(RDMAChannel& channel, Outcome outcome, Operation operation, std::uint32_t position) noexcept
      : channel_(&channel), outcome_(outcome), position_(position), operation_(operation) {}
  void keep_fault(detail::RequestFault fault, std::uint64_t value, std::uint64_t limit) noexcept {
    fault_ = fault;
    value_ = value;
    limit_ = limit;
  }

  RDMAChannel* channel_;
  Outcome outcome_;
  std::uint32_t position_;  // in its queue
  Operation operation_;
  // Why the request was refused; set by keep_fault().
  detail::RequestFault fault_{};
  std::uint64_t value_ = 0;
  std::uint64_t limit_ = 0;
};

/// Ordered, reliable operations to one peer. A resource: neither copyable nor movable.
///
/// Threads   post_send(), post_write() and the other send-side posts by one thread at a time; post_recv() by one thread
///           at a time; poll() by one thread at a time. These may be three different threads. State and counters by any
///           thread
/// ABI       context_ stays the first member, because context() is inlined
/// Lifetime  a channel of an endpoint lives as long as the endpoint. A channel from create() keeps its device and
///           completion queue. Buffers in flight belong to the channel until their completion was polled. The
///           references that its functions return are valid while it lives
///
/// Every post returns at once; poll() returns the outcome later, with the request's id. Requests of one queue complete
/// in the order in which they were posted.
///
/// Unsignaled requests report failures only. They leave the queue when a later request completes. The queue cannot stay
/// full of them: the library itself asks for a completion at least every send_depth() / 2 requests, and for the request
/// that takes the last place. It keeps these completions to itself. The caller must keep calling poll(), which returns
/// nothing for them.
///
/// All post functions return one of these. They cost no allocation, lock, log or system call in the library.
///
/// - ok: accepted
/// - kSendQueueFull (post_recv: kReceiveQueueFull): the queue is full: poll, then retry
/// - kNotConnected: the adapter has not reached RTS, or was moved to ERR (post_recv: was moved to ERR)
/// - kNotSupported: post_recv: the channel takes its receives from a pool; other posts: the device refuses the operation
/// - kInvalidArgument: one of these:
///   - more slices than configured
///   - an inline payload beyond max_inline_bytes(), or kInline on a READ or an atomic
///   - a message beyond max_message_bytes() or longer than `remote`
///   - an atomic whose result slice is not 8 bytes or whose remote address is not a multiple of 8
///   - an immediate with a READ or an atomic
///   - post_chain: an operand of another operation
/// - std::errc: any other error of the device
class RDMACOMM_API RDMAChannel {
 public:
  /// Makes a channel from a queue pair that the program has created itself, before or after RDMAAdapter::connect(). Its
  /// completions are taken by poll().
  ///
  /// name     1..64 printable ASCII characters
  /// adapter  moved into the channel. Its state is INIT (connect() follows) or RTS
  /// Returns  kInvalidArgument: the name, or no adapter; kWrongState: the queue pair is in another state
  [[nodiscard]] static Result<std::shared_ptr<RDMAChannel>> create(std::string name, RDMAAdapter adapter);
  /// As RDMAAdapter::connect(), for a channel from create() whose queue pair is in INIT. Receives that are posted
  /// before this call are ready for the peer's first message.
  ///
  /// Returns  kWrongState: the channel belongs to an endpoint; otherwise as RDMAAdapter::connect()
  [[nodiscard]] Status connect(const QpAddress& remote);
  RDMAChannel(const RDMAChannel&) = delete;             ///< not copyable
  RDMAChannel& operator=(const RDMAChannel&) = delete;  ///< not assignable

  /// The name from create() or ChannelConfig::name.
  [[nodiscard]] const std::string& name() const noexcept;
  /// The attributes of its queue pair, with a value for each empty field.
  [[nodiscard]] const AdapterConfig& config() const noexcept;
  /// The device of its queue pair, on which its slices must be registered.
  [[nodiscard]] RDMADevice device() const noexcept;
  /// The protection domain in which its slices must be registered; empty: the device's own.
  [[nodiscard]] ProtectionDomain domain() const noexcept;
  /// The largest payload that PostFlags::kInline allows, in bytes: at least config().max_inline_bytes.
  [[nodiscard]] std::uint32_t max_inline_bytes() const noexcept;
  /// The largest payload of one request, in bytes: DeviceLimits::max_message_bytes.
  [[nodiscard]] std::uint32_t max_message_bytes() const noexcept;
  /// The address of the local queue pair.
  [[nodiscard]] const QpAddress& address() const noexcept;
  /// The address of the remote queue pair; empty until they are connected.
  [[nodiscard]] const std::optional<QpAddress>& remote_address() const noexcept;
  /// The smaller of both ends' MTUs; 0 before they are connected.
  [[nodiscard]] std::uint32_t path_mtu_bytes() const noexcept;
  /// Whether sends may be posted: the queue pair has reached RTS, and was not ended locally. Cost: one load.
  [[nodiscard]] bool connected() const noexcept;
  /// As EndPoint::set_context(), for one channel.
  template <typename T>
  void set_context(std::shared_ptr<T> context) noexcept {
    context_.set(std::move(context));
  }
  /// As EndPoint::context(), for one channel.
  template <typename T>
  [[nodiscard]] T* context() const noexcept {
    return context_.get<T>();
  }
  /// The pool that it takes its receives from; empty: post_recv() posts them.
  [[nodiscard]] const ReceivePool& receive_pool() const noexcept;
  /// Maximum number of send-side requests outstanding at a time: config().send_depth.
  [[nodiscard]] int send_depth() const noexcept;
  /// Maximum number of receives outstanding at a time: config().recv_depth. 0: they are from a pool.
  [[nodiscard]] int recv_depth() const noexcept;
  /// Send-side requests posted and not yet polled. Unsignaled requests count until a later completion frees them.
  [[nodiscard]] int outstanding_sends() const noexcept;
  /// Receives posted on this channel and not yet polled. Receives of a pool do not count, see ReceivePool::posted().
  [[nodiscard]] int outstanding_recvs() const noexcept;
  /// For ibv_query_qp(3) and other calls that this library does not offer.
  [[nodiscard]] ibv_qp* native_handle() const noexcept;

  // One request after the other ---------------------------------------------------------------------------------

  /// Posts one SEND, as post_send() does, and returns it for waiting. write(), read(), fetch_add(), compare_swap() and
  /// recv() do the same for the other operations:
  ///
  ///     if (auto written = channel.write(letter, inbox, {.immediate = 42}).wait(5s); !written) return written.error();
  ///
  /// For programs that do one thing at a time. Several requests may be posted before the first wait. Not with
  /// kUnsignaled.
  PostedRequest send(SliceList local, PostOptions options = {}) noexcept;
  /// Posts one WRITE, as post_write() does, and returns it for waiting. See send().
  PostedRequest write(SliceList local, const RemoteRegion& remote, PostOptions options = {}) noexcept;
  /// Posts one READ, as post_read() does, and returns it for waiting. See send().
  PostedRequest read(SliceList local, const RemoteRegion& remote, PostOptions options = {}) noexcept;
  /// Posts one atomic, as post_fetch_add() does, and returns it for waiting. See send().
  PostedRequest fetch_add(const BufferSlice& result, const RemoteRegion& remote, FetchAdd operand,
                          PostOptions options = {}) noexcept;
  /// Posts one atomic, as post_compare_swap() does, and returns it for waiting. See send().
  PostedRequest compare_swap(const BufferSlice& result, const RemoteRegion& remote, CompareSwap operands,
                             PostOptions options = {}) noexcept;
  /// Posts one receive, as post_recv() does, and returns it for waiting for a message. See send().
  PostedRequest recv(SliceList local, RecvOptions options = {}) noexcept;

  // Many requests at a time -------------------------------------------------------------------------------------

  /// Posts one SEND of `local`. It consumes the peer's oldest posted receive, whose completion has the immediate, if
  /// one is given.
  ///
  /// local           must not change until the completion (kInline: until the call returns)
  /// options         id, immediate and flags; may be left out
  /// Completes with  kRemoteInvalidRequest: the peer's receive is too short; kRnrRetryExceeded: none was posted
  /// Source          ibv_post_send(3)
  [[nodiscard]] Outcome post_send(SliceList local, PostOptions options = {}) noexcept;
  /// Posts one receive: an incoming SEND is written to `local`. It may be empty for WRITE_WITH_IMM and empty SENDs.
  ///
  /// local           must not be used until the completion
  /// options         the id; may be left out
  /// Completes with  kLocalLength: the message was longer than `local`
  /// Source          ibv_post_recv(3)
  [[nodiscard]] Outcome post_recv(SliceList local, RecvOptions options = {}) noexcept;
  /// Posts one RDMA WRITE of `local` to the start of `remote`. Without an immediate the peer's application is not
  /// notified. With an immediate it is a WRITE_WITH_IMM: it consumes the peer's oldest posted receive, whose completion
  /// has the immediate.
  ///
  /// On completion `local` may be reused. On InfiniBand and RoCE the data is then also in the peer's memory. On iWARP
  /// that is guaranteed only when a later READ completes or the peer receives a later SEND (RFC 5040, 5.5).
  ///
  /// local           must not change until the completion (kInline: until the call returns)
  /// remote          at least as long as `local`
  /// options         id, immediate and flags; may be left out
  /// Completes with  kRemoteAccess: wrong rkey, outside the peer's buffer, or the buffer does not allow kWrite
  [[nodiscard]] Outcome post_write(SliceList local, const RemoteRegion& remote, PostOptions options = {}) noexcept;
  /// Posts one RDMA READ from the start of `remote`. It fills `local` completely.
  ///
  /// local           must not be used until the completion
  /// remote          at least as long as `local`
  /// options         id and flags, without kInline; may be left out
  /// Completes with  kRemoteAccess: as post_write, for kRead
  [[nodiscard]] Outcome post_read(SliceList local, const RemoteRegion& remote, PostOptions options = {}) noexcept;
  /// Adds `operand.addend` to the 8 bytes at `remote` (aligned to 8, host byte order) and stores the old value in
  /// `result` (8 bytes).
  ///
  /// Completes with  kRemoteAccess: as post_write, for kAtomic
  [[nodiscard]] Outcome post_fetch_add(const BufferSlice& result, const RemoteRegion& remote, FetchAdd operand,
                                       PostOptions options = {}) noexcept;
  /// Replaces the 8 bytes at `remote` by `operands.desired` if they equal `operands.expected`. Stores the old value in
  /// `result`. Alignment, byte order and errors are as for post_fetch_add().
  [[nodiscard]] Outcome post_compare_swap(const BufferSlice& result, const RemoteRegion& remote, CompareSwap operands,
                                          PostOptions options = {}) noexcept;
  /// Posts `requests` in order, with one doorbell for up to kMaxChain of them. If one is refused, the requests after it
  /// are not posted.
  [[nodiscard]] PostedChain post_chain(std::span<const SendRequest> requests) noexcept;
  /// Maximum number of requests that post_chain() gives to the device at a time. It accepts longer chains.
  static constexpr std::size_t kMaxChain = 32;

  /// Takes up to out.size() completions, without blocking, and returns the part of `out` that it filled. For channels
  /// that do not share their completion queue: from create(), or with ChannelConfig::own_completion_queue.
  ///
  /// Errors  kWrongState: the completion queue is shared: use EndPoint::poll(); kCompletionFailed: the completion queue
  ///         itself has failed (overrun, device lost)
  [[nodiscard]] Polled poll(std::span<Completion> out) noexcept;

  /// Moves the queue pair to ERR. Then no post is accepted any more, and all outstanding requests complete: kFlushed,
  /// if they were not executed. Takes completions until no request is outstanding, and passes each to `function`. After
  /// success no buffer is in use. Call it only while no other thread posts.
  ///
  /// deadline  until when to wait for the completions
  /// function  empty: the completions are dropped
  /// Returns   kWrongState, kCompletionFailed: as poll(); kTimeout: the device did not return all completions before
  ///           `deadline`; or the device's error
  [[nodiscard]] Status drain(Deadline deadline, const std::function<void(const Completion&)>& function = {});

 private:
  friend class ChannelCore;  // every channel is a ChannelCore; applications derive nothing
  RDMAChannel() noexcept = default;
  ~RDMAChannel() = default;

  Context context_;
};

}  // namespace rdmacomm
