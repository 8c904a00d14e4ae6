// rdma_channel.h - the verbs operations on one connected queue pair.
// Layer: channel. Uses: base, verbs, memory, adapter.   See docs/architecture.md "One write through every layer".
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "rdmacomm/adapter/rdma_adapter.h"
#include "rdmacomm/base/context.h"
#include "rdmacomm/base/deadline.h"
#include "rdmacomm/base/result.h"
#include "rdmacomm/channel/completion.h"
#include "rdmacomm/memory/rdma_buffer.h"
#include "rdmacomm/memory/remote_region.h"

namespace rdmacomm {

class ReceivePool;

/// The slices of one request: a single slice, or any contiguous list of them. A view; it does not own what it
/// shows, and is meant as a function's argument.
class SliceList {
 public:
  SliceList() = default;                                 ///< no bytes
  SliceList(const BufferSlice& one) : list_(&one, 1) {}  // NOLINT(google-explicit-constructor)
  template <std::convertible_to<std::span<const BufferSlice>> Slices>
  SliceList(const Slices& list) : list_(list) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] std::span<const BufferSlice> slices() const noexcept { return list_; }

 private:
  std::span<const BufferSlice> list_;
};

/// Flags of a send-side request. Combine with |. Numbered as IBV_SEND_* are, except that kUnsignaled stands where
/// IBV_SEND_SIGNALED does and means its opposite.
enum class PostFlags : std::uint8_t {
  kNone = 0,
  kFence = 1,       ///< starts after all earlier READs and atomics of this channel are complete
  kUnsignaled = 2,  ///< no completion on success; freed from the queue by a later one. See RDMAChannel
  kSolicited = 4,   ///< SEND and WRITE_WITH_IMM: wakes a peer that waits for solicited completions only
  kInline = 8,      ///< the payload is copied now and may be overwritten at once; at most max_inline_bytes()
};
[[nodiscard]] constexpr PostFlags operator|(PostFlags a, PostFlags b) noexcept {
  return static_cast<PostFlags>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}
[[nodiscard]] constexpr bool has(PostFlags flags, PostFlags flag) noexcept {
  return (static_cast<std::uint8_t>(flags) & static_cast<std::uint8_t>(flag)) != 0;
}

/// 32 bits that a SEND or WRITE carries to the peer's completion, in host byte order. A value; empty by default, and 0 is not empty.
class Immediate {
 public:
  constexpr Immediate() noexcept = default;
  constexpr Immediate(std::uint32_t value) noexcept
      : value_(value), given_(true) {}  // NOLINT(google-explicit-constructor)
  [[nodiscard]] constexpr bool given() const noexcept { return given_; }
  [[nodiscard]] constexpr std::uint32_t value() const noexcept { return value_; }

 private:
  std::uint32_t value_ = 0;
  bool given_ = false;
};

namespace detail {
/// The first member of an aggregate that is filled by names only: nothing but its name converts to it.
struct ByName {};
}  // namespace detail

/// What every post function takes besides its operands, by name: `{.id = 7, .immediate = 42}`. A value of 16 bytes, so that it is passed in
/// registers.
struct PostOptions {
  [[no_unique_address]] detail::ByName by_name{};  ///< not to be set: `{7, 42}` does not compile
  std::uint64_t id = 0;                            ///< comes back in Completion::id
  [[no_unique_address]] Immediate immediate{};     ///< SEND and WRITE; makes it a SEND_WITH_IMM or WRITE_WITH_IMM
  PostFlags flags = PostFlags::kNone;              ///< send-side requests
};
static_assert(sizeof(PostOptions) == 16);

/// The operand of post_fetch_add().
struct FetchAdd {
  [[no_unique_address]] detail::ByName by_name{};  ///< not to be set
  std::uint64_t addend = 0;
};
/// The operands of post_compare_swap().
struct CompareSwap {
  [[no_unique_address]] detail::ByName by_name{};  ///< not to be set
  std::uint64_t expected = 0;
  std::uint64_t desired = 0;
};

/// One send-side request, for post_chain().
struct SendRequest {
  Operation operation = Operation::kSend;  ///< kSend, kWrite, kRead, kFetchAdd or kCompareSwap
  std::span<const BufferSlice> local{};    ///< a view of slices that live until post_chain() returns
  RemoteRegion remote{};                   ///< WRITE, READ, atomics
  PostOptions options{};
  std::uint64_t operand = 0;  ///< kFetchAdd: the addend; kCompareSwap: the expected value
  std::uint64_t desired = 0;  ///< kCompareSwap: the new value
};

/// How far post_chain() came. A value.
struct [[nodiscard]] PostedChain {
  std::size_t count = 0;  ///< requests that were accepted: the first ones
  Outcome outcome{};      ///< why the next one was not; ok: all were accepted

  [[nodiscard]] bool ok() const noexcept { return outcome.ok(); }
  explicit operator bool() const noexcept { return ok(); }
};

/// Ordered, reliable operations to one peer. A resource: neither copyable nor movable.
///
/// Threads: post_send, post_write, ... from one thread at a time; post_recv from one thread at a time; poll
/// from one thread at a time; the three may differ. state and counters from any.
/// Lifetime: must not outlive its RDMADevice and its CompletionQueue. Buffers in flight belong to the channel
/// until their completion was polled.
/// Every post returns at once; the outcome arrives in poll() under the request's id. Requests of one queue
/// complete in the order in which they were posted.
///
/// Unsignaled requests report failures only. They leave the queue when a later request completes; so that they
/// can never fill it for good, the library asks for a completion of its own at least every send_depth() / 2
/// requests and for the one that takes the last place, and keeps it to itself. The caller's part is to go on calling
/// poll(), which also says nothing about them.
///
/// All post functions return
///   ok                 accepted
///   kSendQueueFull     (post_recv: kReceiveQueueFull) as many outstanding as the depth: poll, then retry
///   kNotConnected      the adapter has not reached RTS, or was moved to ERR (post_recv: was moved to ERR)
///   kNotSupported      post_recv: the channel takes its receives from a pool
///   kInvalidArgument   more slices than configured, an inline payload beyond max_inline_bytes(), kInline on a READ
///                      or an atomic, a message beyond max_message_bytes() or longer than `remote`, an atomic whose
///                      result slice is not 8 bytes or whose remote address is not a multiple of 8
///   std::errc          what else the device said
/// and cost no allocation, lock, log or system call in the library.
class RDMAChannel {
 public:
  /// Makes a channel over a queue pair in INIT. It takes the adapter over.
  ///
  /// pool  whose queue() the adapter was made with; nullptr: the queue pair has receives of its own
  [[nodiscard]] static Result<std::unique_ptr<RDMAChannel>> create(std::string name,
                                                                   std::unique_ptr<RDMAAdapter> adapter,
                                                                   std::shared_ptr<ReceivePool> pool = nullptr);
  RDMAChannel(const RDMAChannel&) = delete;
  RDMAChannel& operator=(const RDMAChannel&) = delete;
  /// Flushes and forgets what is outstanding; see drain() for the orderly way.
  ~RDMAChannel();

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] RDMAAdapter& adapter() noexcept { return *adapter_; }
  [[nodiscard]] const RDMAAdapter& adapter() const noexcept { return *adapter_; }
  [[nodiscard]] std::uint32_t max_inline_bytes() const noexcept { return max_inline_bytes_; }
  [[nodiscard]] std::uint32_t max_message_bytes() const noexcept { return max_message_bytes_; }
  /// As EndPoint::set_context() and context(), for one channel.
  template <typename T>
  void set_context(std::shared_ptr<T> context) noexcept {
    context_.set(std::move(context));
  }
  template <typename T>
  [[nodiscard]] T* context() const noexcept {
    return context_.get<T>();
  }
  /// Where its receives come from; nullptr: from post_recv().
  [[nodiscard]] ReceivePool* receive_pool() const noexcept { return pool_.get(); }
  [[nodiscard]] int send_depth() const noexcept { return static_cast<int>(send_.depth); }
  [[nodiscard]] int recv_depth() const noexcept { return static_cast<int>(recv_.depth); }
  /// Requests posted and not yet polled. Unsignaled ones count until a later completion frees them.
  [[nodiscard]] int outstanding_sends() const noexcept { return static_cast<int>(send_.outstanding()); }
  [[nodiscard]] int outstanding_recvs() const noexcept { return static_cast<int>(recv_.outstanding()); }

  /// Posts one SEND of `local`, which the peer's oldest posted receive takes. Its completion there has the immediate, if one is given.
  ///
  /// local           must not change until the completion (kInline: until the call returns)
  /// Completes with  kRemoteInvalidRequest: the peer's receive is too short; kRnrRetryExceeded: none was posted
  /// Source          ibv_post_send(3)
  [[nodiscard]] Outcome post_send(SliceList local, PostOptions options = {}) noexcept;
  /// Posts one receive: an incoming SEND is written to `local`, which may be empty for WRITE_WITH_IMM and empty SENDs.
  ///
  /// local           must not be used until the completion
  /// options         only `id` is used
  /// Completes with  kLocalLength: the message was longer than `local`
  /// Source          ibv_post_recv(3)
  [[nodiscard]] Outcome post_recv(SliceList local, PostOptions options = {}) noexcept;
  /// Posts one RDMA WRITE of `local` to the start of `remote`. Without an immediate the peer's application does not notice it. With one it
  /// is a WRITE_WITH_IMM: it takes the peer's oldest posted receive, whose completion carries the immediate.
  ///
  /// On completion `local` may be reused. On InfiniBand and RoCE the data is then also in the peer's memory. On iWARP that is guaranteed
  /// only when a later READ completes or the peer receives a later SEND (RFC 5040, 5.5).
  ///
  /// remote          at least as long as `local`
  /// Completes with  kRemoteAccess: wrong rkey, outside the peer's buffer, or the buffer does not allow kWrite
  [[nodiscard]] Outcome post_write(SliceList local, const RemoteRegion& remote, PostOptions options = {}) noexcept;
  /// Posts one RDMA READ of as many bytes as `local` has, from the start of `remote`.
  ///
  /// local           must not be used until the completion
  /// Completes with  kRemoteAccess: as post_write, for kRead
  [[nodiscard]] Outcome post_read(SliceList local, const RemoteRegion& remote, PostOptions options = {}) noexcept;
  /// Adds `operand.addend` to the 8 bytes at `remote` (aligned to 8, host byte order) and puts the old value into `result` (8 bytes).
  ///
  /// Completes with  kRemoteAccess: as post_write, for kAtomic
  [[nodiscard]] Outcome post_fetch_add(const BufferSlice& result, const RemoteRegion& remote, FetchAdd operand,
                                       PostOptions options = {}) noexcept;
  /// Replaces the 8 bytes at `remote` by `operands.desired` if they equal `operands.expected`; `result` gets the old value.
  [[nodiscard]] Outcome post_compare_swap(const BufferSlice& result, const RemoteRegion& remote, CompareSwap operands,
                                          PostOptions options = {}) noexcept;
  /// Posts `requests` in order, with one doorbell for up to kMaxChain of them. Requests behind one that is refused are not touched.
  [[nodiscard]] PostedChain post_chain(std::span<const SendRequest> requests) noexcept;
  static constexpr std::size_t kMaxChain = 32;

  /// Takes up to out.size() completions, without blocking, and returns the part of `out` that it filled.
  /// Only if this channel alone reports to its CompletionQueue; shared ones are polled by CompletionPoller.
  /// Errors  kCompletionFailed: the completion queue itself has failed (overrun, device lost)
  [[nodiscard]] Polled poll(std::span<Completion> out) noexcept;

  /// Moves the queue pair to ERR, so that everything outstanding completes (as kFlushed what was not executed), and
  /// no post is accepted any more. The caller polls until drained(): then no buffer is in use. For channels on a shared
  /// CompletionQueue, which drain() cannot poll.
  /// Threads: while nobody else posts. Calling it again is harmless.
  [[nodiscard]] Status begin_drain();
  /// Whether nothing is outstanding. After begin_drain() that comes about by polling, also on devices that do not tell of
  /// every request's end (DeviceLimits::flushes_in_error): there, a poll that finds the queue empty is the end of all.
  /// With a pool, whose receives are not flushed, it comes about by found_empty().
  [[nodiscard]] bool drained() const noexcept {
    return outstanding_sends() == 0 && outstanding_recvs() == 0 &&
           (pool_ == nullptr || pool_settled_.load(std::memory_order_relaxed));
  }
  /// A poll that began after begin_drain() has found the completion queue empty: no receive of a pool is still in it.
  void found_empty() noexcept { pool_settled_.store(true, std::memory_order_relaxed); }
  /// begin_drain(), then takes completions until nothing is outstanding, and passes each to `function`. Only if poll() may be called.
  ///
  /// function  empty: the completions are dropped
  /// Returns   kTimeout: the device did not hand all completions out in time
  [[nodiscard]] Status drain(Deadline deadline, const std::function<void(const Completion&)>& function = {});

 private:
  friend class CompletionPoller;

  /// Whether the caller hears of a request's completion.
  enum class Report : std::uint8_t { kAlways, kOnError, kNever };

  /// The requests outstanding in one queue, in posting order: index = position modulo size.
  struct RequestRing {
    struct Entry {
      std::uint64_t id;
      /// Payload bytes (32 bits), operation (8), report (8): packed by hand, because one wide load of several narrow
      /// stores stalls the core for longer than all the rest of a post takes.
      std::uint64_t what;

      Entry() = default;
      Entry(std::uint64_t id_, std::uint32_t bytes, Operation operation, Report report) noexcept
          : id(id_),
            what(bytes | std::uint64_t{static_cast<std::uint8_t>(operation)} << 32 |
                 std::uint64_t{static_cast<std::uint8_t>(report)} << 40) {}
      [[nodiscard]] std::uint32_t bytes() const noexcept { return static_cast<std::uint32_t>(what); }
      [[nodiscard]] Operation operation() const noexcept { return static_cast<Operation>(what >> 32 & 0xff); }
      [[nodiscard]] Report report() const noexcept { return static_cast<Report>(what >> 40 & 0xff); }
    };
    std::unique_ptr<Entry[]> entries;
    std::uint32_t depth = 0;           ///< requests, as configured
    std::uint32_t mask = 0;            ///< size - 1; size is depth rounded up to a power of two
    std::uint32_t max_silent_run = 0;  ///< after so many the library asks for a completion itself

    // Written by the posting thread.
    alignas(64) std::atomic<std::uint32_t> posted{0};  ///< how many ever, modulo 2^32
    std::uint32_t completed_seen = 0;  ///< `completed` when the posting thread last looked: spares it the cache line
    std::uint32_t silent_run = 0;      ///< requests since the last one that the device reports on success

    /// Of the newest requests, so many whose end the device will not tell. Set in a drain.
    std::atomic<std::uint32_t> untold{0};

    // Written by the polling thread. Positions are passed in order, so this is also the oldest one outstanding.
    alignas(64) std::atomic<std::uint32_t> completed{0};

    void allocate(int depth_);
    [[nodiscard]] Entry& at(std::uint32_t position) const noexcept { return entries[position & mask]; }
    /// Places left after `position`, as the posting thread sees it; looks again only when there seem to be none.
    [[nodiscard]] std::uint32_t room(std::uint32_t position) noexcept;
    [[nodiscard]] std::uint32_t outstanding() const noexcept {
      // In this order: what completes in between is then missing from neither count.
      const std::uint32_t done = completed.load(std::memory_order_acquire);
      const std::uint32_t open = posted.load(std::memory_order_acquire) - done;
      const std::uint32_t told = open - untold.load(std::memory_order_relaxed);
      return told <= open ? told : 0;
    }
  };

  RDMAChannel(std::string name, std::unique_ptr<RDMAAdapter> adapter, std::shared_ptr<ReceivePool> pool);

  // channel_post.cc
  [[nodiscard]] Errc check(const SendRequest& request, std::uint32_t& bytes) const noexcept;
  [[nodiscard]] Errc prepare(const SendRequest& request, std::uint32_t position, ibv_send_wr& wr) noexcept;
  [[nodiscard]] Outcome post_one(const SendRequest& request) noexcept;
  [[nodiscard]] PostedChain post_some(std::span<const SendRequest> requests) noexcept;
  [[nodiscard]] Outcome take_back(std::uint32_t position, int number) noexcept;
  [[nodiscard]] Outcome post_marker() noexcept;
  // channel_poll.cc
  [[nodiscard]] bool complete(const ibv_wc& wc, Completion& out) noexcept;
  void describe(const ibv_wc& wc, bool is_recv, std::uint32_t bytes, Completion& out) noexcept;
  [[nodiscard]] bool complete_pooled(const ibv_wc& wc, Completion& out) noexcept;
  [[nodiscard]] Errc no_room_for_recv() const noexcept;
  [[nodiscard]] Errc poll_more(ibv_cq* cq, std::span<Completion> out, std::size_t& count) noexcept;
  [[nodiscard]] Polled poll_on(int got, bool first_reported, std::span<const ibv_wc> taken,
                               std::span<Completion> out) noexcept;
  [[nodiscard]] Errc poll_for_end(std::span<Completion> out, std::size_t& count) noexcept;
  // The end of a drain where the device does not tell of every request's end: between look_for_end() and settle() the
  // completion queue was polled and found empty.
  void look_for_end() noexcept { end_seen_ = untold_end_.load(std::memory_order_acquire); }
  void settle() noexcept;

  const std::string name_;
  const std::shared_ptr<ReceivePool> pool_;  // before the adapter, whose queue pair uses its queue
  const std::unique_ptr<RDMAAdapter> adapter_;
  // Copies of what the hot functions need, side by side.
  ibv_qp* const qp_;
  ibv_cq* const send_cq_;
  ibv_cq* const recv_cq_;
  const std::uint32_t max_send_slices_;
  const std::uint32_t max_read_slices_;
  const std::uint32_t max_recv_slices_;
  const std::uint32_t max_inline_bytes_;
  const std::uint32_t max_message_bytes_;
  const unsigned order_flags_;  // with all requests but READs: DeviceLimits::completes_in_order
  RequestRing send_;
  RequestRing recv_;
  /// All that the device will ever tell is in the completion queue. Set by begin_drain(), on such devices only.
  std::atomic<bool> untold_end_{false};
  bool end_seen_ = false;  // the polling thread's
  std::atomic<bool> pool_settled_{false};
  Context context_;
};

}  // namespace rdmacomm
