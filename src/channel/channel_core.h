// channel_core.h - the implementation of RDMAChannel.
// Layer: channel. Uses: adapter.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "adapter/adapter_core.h"
#include "channel/completion_source.h"
#include "rdmacomm/channel.h"
#include "rdmacomm/receive_pool.h"

namespace rdmacomm {

struct RequestView;

/// Base of the data that a completion thread keeps for the owner of a channel, so that the channel can point to it.
struct ChannelServer {};

/// The implementation of RDMAChannel: each of its functions casts to this class, at no cost. A resource: neither
/// copyable nor movable. Must not outlive its device and its completion queue.
class ChannelCore final : public RDMAChannel {
 public:
  /// Makes a channel from a queue pair in INIT or RTS, and takes ownership of the adapter.
  ///
  /// pool  the adapter was created with its queue(); empty: the queue pair has its own receives
  [[nodiscard]] static Result<std::unique_ptr<ChannelCore>> create(std::string name,
                                                                   std::unique_ptr<AdapterCore> adapter,
                                                                   ReceivePool pool = {});
  /// Flushes and forgets outstanding requests; see drain() for the orderly way.
  ~ChannelCore();

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] AdapterCore& adapter() noexcept { return *adapter_; }
  [[nodiscard]] const AdapterCore& adapter() const noexcept { return *adapter_; }
  [[nodiscard]] const ReceivePool& receive_pool() const noexcept { return pool_; }
  [[nodiscard]] int outstanding_sends() const noexcept { return static_cast<int>(send_.outstanding()); }
  [[nodiscard]] int outstanding_recvs() const noexcept { return static_cast<int>(recv_.outstanding()); }

  /// Moves the queue pair to ERR. Then no post is accepted any more, and all outstanding requests complete: kFlushed,
  /// if they were not executed. The caller polls until drained(); after that no buffer is in use. For channels on a
  /// shared CompletionQueue, which drain() cannot poll.
  /// Threads: only while no other thread posts. Calling it again is harmless.
  [[nodiscard]] Status begin_drain();
  /// Whether nothing is outstanding. After begin_drain(), polling brings this about. Some devices do not report the end
  /// of every request (DeviceLimits::flushes_in_error): there, a poll that finds the queue empty ends all requests.
  /// Receives of a pool are not flushed: for them found_empty() must be called.
  [[nodiscard]] bool drained() const noexcept {
    return outstanding_sends() == 0 && outstanding_recvs() == 0 &&
           (!pool_ || pool_settled_.load(std::memory_order_relaxed));
  }
  /// A poll that began after begin_drain() has found the completion queue empty: it holds no receive of a pool any
  /// more.
  void found_empty() noexcept { pool_settled_.store(true, std::memory_order_relaxed); }

  /// Sets the source from which PostedRequest::wait() takes completions. The default is the channel's own queues. Call
  /// it before anything is posted.
  ///
  /// source      lives as long as the channel; nullptr: a thread of the session takes the completions, and wait() fails
  /// owns_queue  the completion queue has completions of this channel only, and no thread of the session polls it
  void set_source(CompletionSource* source, bool owns_queue) noexcept {
    source_ = source;
    owns_queue_ = owns_queue;
    note_kept(false);
  }
  /// The owner to which the polling thread delivers the channel's completions; nullptr: not known yet, or none any
  /// more.
  /// Threads: the polling thread
  void set_server(ChannelServer* server) noexcept { server_ = server; }
  [[nodiscard]] ChannelServer* server() const noexcept { return server_; }
  /// Whether RDMAChannel::poll() and drain() may be used.
  [[nodiscard]] bool owns_queue() const noexcept { return owns_queue_; }
  /// The position of the newest completed request, in the receive queue or in the send queue.
  /// Threads: the polling thread
  [[nodiscard]] std::uint32_t newest_completed(bool is_recv) const noexcept {
    return (is_recv ? recv_ : send_).completed.load(std::memory_order_relaxed) - 1;
  }
  /// Whether completions are kept that the wait for another request has taken.
  [[nodiscard]] bool keeps_any() const noexcept { return source_ != nullptr && source_->keeps_any(); }
  /// As PostedRequest::wait().
  [[nodiscard]] Result<Completion> wait_for(const PostedRequest& request, Deadline deadline);
  /// Decides whether poll() may use its fast path: there is only one completion queue, it belongs to this channel
  /// alone, and no completions are kept.
  /// Threads: the polling thread
  void note_kept(bool any) noexcept { straight_ = !any && owns_queue_ && recv_cq_ == send_cq_; }

 private:
  friend class RDMAChannel;
  friend class CompletionQueue;

  /// Whether the completion of a request is passed on to the caller.
  enum class Report : std::uint8_t { kAlways, kOnError, kNever };

  /// The outstanding requests of one queue, in posting order: index = position modulo size.
  struct RequestRing {
    struct Entry {
      std::uint64_t id;
      /// Payload bytes (32 bits), operation (8), report (8), packed by hand: one wide load that follows several narrow
      /// stores stalls the core for longer than the rest of a post takes.
      std::uint64_t what;

      Entry() = default;
      /// operation  the numeric value of an Operation
      Entry(std::uint64_t id_, std::uint32_t bytes, unsigned operation, Report report) noexcept
          : id(id_),
            what(bytes | std::uint64_t{operation} << 32 | std::uint64_t{static_cast<std::uint8_t>(report)} << 40) {}
      Entry(std::uint64_t id_, std::uint32_t bytes, Operation operation, Report report) noexcept
          : Entry(id_, bytes, static_cast<unsigned>(operation), report) {}
      [[nodiscard]] std::uint32_t bytes() const noexcept { return static_cast<std::uint32_t>(what); }
      [[nodiscard]] Operation operation() const noexcept { return static_cast<Operation>(what >> 32 & 0xff); }
      [[nodiscard]] Report report() const noexcept { return static_cast<Report>(what >> 40 & 0xff); }
    };
    std::unique_ptr<Entry[]> entries;
    std::uint32_t depth = 0;           ///< requests, as configured
    std::uint32_t mask = 0;            ///< size - 1; size is depth rounded up to a power of two
    std::uint32_t max_silent_run = 0;  ///< silent requests in a row before the library asks for a completion

    // Written by the posting thread.
    alignas(64) std::atomic<std::uint32_t> posted{0};  ///< number of requests ever posted, modulo 2^32
    std::uint32_t completed_seen =
        0;  ///< last value of `completed` that the posting thread read; saves reading its cache line
    std::uint32_t silent_run = 0;  ///< requests since the last one whose success the device reports

    /// The number of newest requests whose end the device will not report. Set in a drain.
    std::atomic<std::uint32_t> unreported{0};

    // Written by the polling thread. Requests complete in order, so this is also the position of the oldest outstanding
    // one.
    alignas(64) std::atomic<std::uint32_t> completed{0};

    void allocate(int depth_);
    [[nodiscard]] Entry& at(std::uint32_t position) const noexcept { return entries[position & mask]; }
    [[nodiscard]] Entry entry_of(std::uint32_t position) const noexcept;
    void pass(std::uint32_t position) noexcept;
    /// Whether `position` and the place behind it are free, as far as the posting thread knows without reading
    /// `completed`.
    [[nodiscard]] bool has_room(std::uint32_t position) const noexcept { return position - completed_seen + 1 < depth; }
    /// Free places from `position` on. Reads `completed` again only if at most one place seems to be left.
    [[nodiscard]] std::uint32_t room(std::uint32_t position) noexcept;
    [[nodiscard]] std::uint32_t outstanding() const noexcept {
      // `completed` is read first, so that a request that completes between the two loads is missing from neither
      // count.
      const std::uint32_t done = completed.load(std::memory_order_acquire);
      const std::uint32_t open = posted.load(std::memory_order_acquire) - done;
      const std::uint32_t reported = open - unreported.load(std::memory_order_relaxed);
      return reported <= open ? reported : 0;
    }
  };

  ChannelCore(std::string name, std::unique_ptr<AdapterCore> adapter, ReceivePool pool);

  // channel_post.cc
  template <typename Bytes>
  [[nodiscard]] detail::RequestFault check(const RequestView& request, Bytes bytes) const noexcept;
  [[nodiscard]] std::uint32_t max_slices(Operation operation) const noexcept;
  [[nodiscard]] detail::RequestFault find_fault(const RequestView& request, std::uint64_t bytes) const noexcept;
  void enter(const RequestView& request, std::uint32_t bytes, std::uint32_t position, bool takes_last_place,
             ibv_send_wr& wr) noexcept;
  [[nodiscard]] Errc prepare(const RequestView& request, std::uint32_t position, ibv_send_wr& wr) noexcept;
  [[nodiscard]] Outcome submit(std::uint32_t position, ibv_send_wr& wr) noexcept;
  [[nodiscard]] Outcome post_any(const RequestView& request) noexcept;
  template <typename Make>
  [[nodiscard]] Outcome post_one(const Make& make) noexcept;
  [[nodiscard]] PostedChain post_some(std::span<const SendRequest> requests) noexcept;
  [[nodiscard]] Outcome take_back(std::uint32_t count, int number) noexcept;
  [[nodiscard]] Outcome post_marker() noexcept;
  [[nodiscard]] Outcome post_one_recv(std::span<const BufferSlice> slices, std::uint64_t id) noexcept;
  // channel_poll.cc
  [[nodiscard]] Polled poll_now(std::span<Completion> out) noexcept;
  [[nodiscard]] Polled poll_aside(std::span<Completion> out) noexcept;
  [[nodiscard]] Errc poll_all(std::span<Completion> out, std::size_t& count) noexcept;
  [[nodiscard]] Polled poll_rest(std::span<Completion> out, std::size_t count) noexcept;
  [[nodiscard]] bool complete_straight(const ibv_wc& wc, Completion& out) noexcept;
  [[nodiscard]] bool complete(const ibv_wc& wc, Completion& out) noexcept;
  [[nodiscard]] bool complete_any(const ibv_wc& wc, Completion& out) noexcept;
  void describe(const ibv_wc& wc, bool is_recv, std::uint32_t bytes, Completion& out) noexcept;
  [[nodiscard]] Errc no_room_for_recv() const noexcept;
  [[nodiscard]] Errc poll_more(ibv_cq* cq, std::span<Completion> out, std::size_t& count) noexcept;
  [[nodiscard]] Polled poll_on(int got, const ibv_wc* batch, std::span<Completion> out) noexcept;
  [[nodiscard]] Errc poll_for_end(std::span<Completion> out, std::size_t& count) noexcept;
  // The end of a drain on devices that do not report the end of every request. Between look_for_end() and settle() the
  // completion queue was polled and found empty.
  void look_for_end() noexcept { end_seen_ = unreported_end_.load(std::memory_order_acquire); }
  void settle() noexcept;
  // channel_wait.cc
  [[nodiscard]] PostedRequest post_to_wait(const RequestView& request) noexcept;
  void keep_fault(const RequestView& request, PostedRequest& refused) const noexcept;
  [[nodiscard]] Error not_posted(const PostedRequest& request) const;
  [[nodiscard]] Error outstanding_still(Operation operation) const;
  [[nodiscard]] Error already_returned() const;
  [[nodiscard]] Result<Completion> outcome_of(const Completion& completion) const;

  /// Waits for completions in the queues of the channel itself.
  class OwnSource final : public CompletionSource {
   public:
    explicit OwnSource(ChannelCore& channel) noexcept : channel_(channel) {}

   private:
    [[nodiscard]] Result<Completion> take_next(Deadline deadline) override;
    void note_kept(bool any) noexcept override { channel_.note_kept(any); }

    ChannelCore& channel_;
  };

  const std::string name_;
  const ReceivePool pool_;  // before adapter_, whose queue pair uses the pool's queue
  const std::unique_ptr<AdapterCore> adapter_;
  // Copies of the values that the hot functions need, side by side.
  ibv_qp* const qp_;
  ibv_cq* const send_cq_;
  ibv_cq* const recv_cq_;
  const std::uint32_t max_send_slices_;
  const std::uint32_t max_read_slices_;
  const std::uint32_t max_recv_slices_;
  const std::uint32_t max_inline_bytes_;
  const std::uint32_t max_message_bytes_;
  const unsigned
      usual_flags_;  // of all requests except READs: signaled, and the fence that completes_in_order requires
  RequestRing send_;
  RequestRing recv_;
  /// The completion queue has everything that the device will ever report. Set by begin_drain(), on such devices only.
  std::atomic<bool> unreported_end_{false};
  bool end_seen_ = false;  // used by the polling thread
  bool owns_queue_ = true;
  bool is_own_ = false;  // created by RDMAChannel::create()
  bool straight_;        // used by the polling thread, see note_kept()
  OwnSource own_source_;
  CompletionSource* source_ = &own_source_;
  ChannelServer* server_ = nullptr;  // used by the polling thread
  std::atomic<bool> pool_settled_{false};
};

/// Every RDMAChannel is a ChannelCore.
[[nodiscard]] inline ChannelCore& core_of(RDMAChannel& channel) noexcept {
  return static_cast<ChannelCore&>(channel);
}
[[nodiscard]] inline const ChannelCore& core_of(const RDMAChannel& channel) noexcept {
  return static_cast<const ChannelCore&>(channel);
}

}  // namespace rdmacomm
