// stream_link.h - the engine of streams: segments over a channel, credits, and waiting.
// Layer: stream, internal.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/biased_lock.h"
#include "base/ring.h"
#include "base/turn.h"
#include "rdmacomm/buffer.h"
#include "rdmacomm/buffer_pool.h"
#include "rdmacomm/channel.h"
#include "rdmacomm/completion.h"
#include "rdmacomm/endpoint.h"
#include "rdmacomm/message_stream.h"
#include "rdmacomm/stream.h"
#include "stream/credits.h"
#include "stream/segment.h"

namespace rdmacomm {

/// One end of a stream. Outgoing data is a queue of slices, which are sent as the peer's credits allow. Incoming data
/// is a queue of slots. Each slot is a receive with room for a header and for a block.
///
/// The peer has one receive for each data segment for which it gives credit, and control_receives() more for all other
/// segments. Those are limited without credits: one of each kind (HELLO and FINISHED share a receive), except kCredit
/// and kTaken, which only an end that sends data receives. A kCredit is sent for a share of all blocks, or when the
/// peer has used all earlier credits. So at most kCreditShare of them are in flight, and no segment ever waits for a
/// receive. If the end reads data, the additional receives have blocks too, because any segment may take any receive.
/// Each additional receive therefore adds a block to the memory that the data passes through.
///
/// Threads: one writes, one reads, any may release. lock_ guards all state. A waiting thread polls for all: one at a
/// time sleeps in EndPoint::wait() without the lock, the others wait until it returns.
class StreamLink : public std::enable_shared_from_this<StreamLink> {
 public:
  static constexpr int kCreditShare = 2;
  static constexpr int kControlSends = 16;
  // Send slots that other segments must leave free, so that END, FINISHED and ABORT can always be sent.
  static constexpr std::uint64_t kSlotsForEnds = 4;
  static constexpr std::uint64_t kSlotsForCredits = kSlotsForEnds + 2;
  static constexpr std::uint64_t kSlotsForReads = kSlotsForCredits + 2;
  static constexpr std::size_t kControlSlot = 512;  // bytes for the header of a segment, or for a whole control segment
  static_assert(SegmentHeader::kBytes + kMaxControlBytes <= kControlSlot);

  /// pool  for a stream of messages; empty: a stream of bytes
  [[nodiscard]] static Result<std::shared_ptr<StreamLink>> open(EndPoint endpoint, RDMAChannel& channel,
                                                                BufferPool pool, const StreamOptions& options,
                                                                Deadline deadline);
  /// For HELLO (later FINISHED), END and ABORT; and for the peer's kCredit segments.
  [[nodiscard]] static int control_receives(const StreamOptions& options) noexcept {
    return 3 + (options.writes() ? kCreditShare : 0);
  }
  /// Additional requests of a stream of messages: announcements, READs of parts, and kTaken segments.
  [[nodiscard]] static int more_receives(const StreamOptions& options, bool messages) noexcept {
    return messages && options.writes() ? MessageStream::kMaxAnnounced : 0;
  }
  [[nodiscard]] static int more_sends(bool messages) noexcept {
    return messages ? 3 * MessageStream::kMaxAnnounced : 0;
  }
  StreamLink(const StreamLink&) = delete;
  StreamLink& operator=(const StreamLink&) = delete;
  ~StreamLink() = default;

  [[nodiscard]] Result<std::span<std::byte>> lend(Deadline deadline);
  [[nodiscard]] Status commit(std::size_t count);
  /// Commits `count` bytes as one message.
  [[nodiscard]] Status commit_message(std::size_t count);
  /// Announces a part of a message, which the peer reads with a READ. Waits until fewer than kMaxAnnounced are
  /// announced.
  [[nodiscard]] Status announce(BufferLease lease, std::uint64_t message_bytes, std::uint64_t offset,
                                Deadline deadline);
  /// Takes a block from the pool; waits until one is free.
  [[nodiscard]] Result<BufferLease> take(std::size_t bytes, Deadline deadline);
  /// Maximum size of a part: the smaller of the largest blocks of both ends' pools.
  [[nodiscard]] std::size_t part_bytes() const noexcept;
  [[nodiscard]] Status write_from(const BufferSlice& slice, std::shared_ptr<const void> keep, Deadline deadline);
  [[nodiscard]] Status flush(Deadline deadline);
  [[nodiscard]] Status finish(Deadline deadline);
  [[nodiscard]] Status close(Deadline deadline);
  /// A data segment, or the end of the stream.
  struct Arrived {
    /// A part of a large message that has been read.
    struct Part {
      BufferLease lease;
      std::uint64_t message_bytes = 0;
      std::uint64_t offset = 0;
    };
    bool is_end = false;
    std::uint32_t slot = 0;  // lent until release()
    BufferSlice slice{};
    std::optional<Part> part;  // if given, used instead of slot and slice
  };
  /// Waits for the oldest data segment, or for the end.
  [[nodiscard]] Status next(Deadline deadline, Arrived& arrived);
  /// Gives a slot back. Lent slots may outlive the stream: they keep the link alive until the last one is given back.
  void release(std::uint32_t slot) noexcept;
  void abort(std::string_view reason) noexcept;
  /// Ends the use of the link by the stream: nothing is posted any more, and nothing is outstanding on return.
  void abandon() noexcept;

  [[nodiscard]] Status status() const;
  [[nodiscard]] StreamCounts counts() const;
  [[nodiscard]] std::size_t block_bytes() const noexcept { return block_bytes_; }
  [[nodiscard]] const EndPoint& endpoint() const noexcept { return endpoint_; }

 private:
  /// Holds lock_. Objects kept for requests are destroyed after the unlock, because that may call another stream, or
  /// this one.
  class Guard;
  static constexpr std::uint32_t kNoBlock = 0xffffffff;
  enum class What : std::uint8_t { kBlock, kBorrowed, kAnnouncement };
  struct Ready {
    BufferSlice slice{};
    What what = What::kBlock;
    std::uint32_t block = kNoBlock;  // index of the local block
  };
  /// A request, and the resource that is free again when it is complete.
  struct Sent {
    enum class Frees : std::uint8_t { kNothing, kBlock, kBorrowed } frees = Frees::kNothing;
    std::uint32_t block = kNoBlock;
  };
  /// A part that was announced to the peer.
  struct Announced {
    Announcement announcement{};
    BufferLease lease{};
  };
  /// A part that the peer has announced.
  struct Part {
    Announcement announcement{};
    BufferLease lease{};        // the destination; empty: the pool has not had a block yet
    std::uint64_t read_as = 0;  // the id of the READ
    bool done = false;
  };

  StreamLink(EndPoint endpoint, RDMAChannel& channel, BufferPool pool, const StreamOptions& options);
  [[nodiscard]] Status check_channel() const;
  [[nodiscard]] Status prepare();
  [[nodiscard]] Status exchange_hello(Deadline deadline);

  // Memory
  [[nodiscard]] BufferSlice at(std::size_t offset, std::size_t bytes) const noexcept {
    return {memory_begin_ + offset, static_cast<std::uint32_t>(bytes), memory_key_};
  }
  [[nodiscard]] BufferSlice write_block(std::uint32_t index) const noexcept {
    return at(index * options_.block_bytes, options_.block_bytes);
  }
  [[nodiscard]] BufferSlice read_block(std::uint32_t slot) const noexcept {
    return at(slots_at_ + slot * slot_bytes_, slot_bytes_);
  }
  [[nodiscard]] BufferSlice read_header(std::uint32_t slot) const noexcept {
    return at(headers_at_ + slot * SegmentHeader::kBytes, SegmentHeader::kBytes);
  }
  [[nodiscard]] BufferSlice control(std::uint64_t position) const noexcept {
    return at(control_at_ + (position & (sent_.size() - 1)) * kControlSlot, kControlSlot);
  }

  // Waiting, with the lock held
  template <typename Done>
  [[nodiscard]] Status wait_until(Guard& guard, Deadline deadline, Done done);
  void poll_now();
  [[nodiscard]] Status sleep(Guard& guard, Deadline deadline);
  [[nodiscard]] Status timed_out() const;
  void handle(std::span<const Completion> completions);
  void on_sent(std::uint64_t id);
  [[nodiscard]] static Error broken(const std::string& what);  // the peer has broken the protocol
  void note_failed(const Completion& completion);
  void settle_failure();
  void fail(Error why);
  [[nodiscard]] Status ended() const { return failed_ ? Status(*failed_) : Status(); }

  // Receiving
  [[nodiscard]] Status on_segment(const Completion& received);
  [[nodiscard]] Status on_control(const SegmentHeader& header, std::span<const std::byte> payload);
  [[nodiscard]] Status on_hello(std::span<const std::byte> payload);
  [[nodiscard]] Status on_data(std::uint32_t slot, const SegmentHeader& header);
  [[nodiscard]] Status on_announcement(std::uint32_t slot, std::span<const std::byte> payload);
  [[nodiscard]] Status on_taken(std::uint32_t count);
  void read_parts();
  void on_part_read(std::uint64_t id);
  [[nodiscard]] bool post_read(Part& part);
  [[nodiscard]] std::size_t done_parts() const noexcept;
  [[nodiscard]] Status check_room() const;
  void enqueue(std::uint32_t slot, std::uint32_t length);
  void release_slot(std::uint32_t slot);
  [[nodiscard]] bool front_is_there() const noexcept {
    return !queue_.empty() && (arrived_[queue_.front()] != kIsPart || parts_.front().done);
  }
  [[nodiscard]] bool end_is_there() const noexcept { return queue_.empty() && end_received_; }
  void take_front(Arrived& arrived);
  [[nodiscard]] Status on_end(std::span<const std::byte> payload);
  [[nodiscard]] Status on_credit(std::uint32_t credit);
  void post_receive(std::uint32_t slot);
  void make_room_for_finished();

  // Sending
  [[nodiscard]] Status check_writable() const;
  [[nodiscard]] std::uint64_t free_slots() const noexcept {
    return static_cast<std::uint64_t>(send_depth_) - (posted_ - completed_);
  }
  [[nodiscard]] bool has_slot_for_data() const noexcept { return free_slots() > kSlotsForCredits; }
  [[nodiscard]] bool peer_has_room() const noexcept { return peers_receives_.in_use() < peer_->read_blocks; }
  [[nodiscard]] bool may_borrow() const noexcept {
    return borrowed_.size() < static_cast<std::size_t>(options_.borrowed_blocks);
  }
  [[nodiscard]] Status find_block(Guard& guard, Deadline deadline);
  void queue_current();
  void queue_block();
  void push();
  [[nodiscard]] bool has_parts_to_read() const noexcept {
    return parts_waiting_ > 0 || parts_unreported_ > 0 || starved_;
  }
  /// Whether pump() has something to do.
  [[nodiscard]] bool has_work() const noexcept {
    return !ready_.empty() || has_parts_to_read() || end_wanted_ != end_sent_ || end_read_ != finished_sent_ ||
           owes_credit();
  }
  void pop_ready() noexcept;
  [[nodiscard]] bool send_announcement();
  void pump();
  [[nodiscard]] bool send_ready();
  /// Reports many releases together. A few are reported only if the peer, as far as it knows, has no free block left.
  [[nodiscard]] bool owes_credit() const noexcept {
    const std::uint32_t owed = receives_.unreported();
    if (owed == 0 || end_received_) return false;
    return owed >= credit_step_ || receives_.in_use_as_reported() == static_cast<std::uint32_t>(options_.read_blocks);
  }
  [[nodiscard]] bool send_credit();
  [[nodiscard]] bool send_data(const BufferSlice& data, Sent sent);
  [[nodiscard]] bool post(std::span<const BufferSlice> parts, Immediate immediate, Sent sent, bool signaled);
  void wait_for_sends(Guard& guard, Deadline deadline);
  [[nodiscard]] bool send_control(SegmentKind kind, std::span<const std::byte> payload, std::uint32_t value = 0);
  void note_posted(Sent sent, bool is_signaled) noexcept {
    sent_[posted_ & (sent_.size() - 1)] = sent;
    ++posted_;
    unsignaled_ = is_signaled ? 0 : unsignaled_ + 1;
    if (is_signaled) signaled_until_ = posted_;
  }
  void fail_post(Outcome refused);
  void send_abort(std::string_view reason);
  void abort_locked(std::string_view reason);

  const EndPoint endpoint_;
  RDMAChannel& channel_;
  const BufferPool pool_;
  const StreamMode mode_;
  const StreamOptions options_;
  const int send_depth_;
  const bool immediate_;              // data uses immediate data
  const std::uint32_t credit_step_;   // number of releases that one kCredit reports
  const std::uint32_t signal_every_;  // one of this number of data segments is signaled
  const bool
      looks_early_;  // lend() looks for the block that was sent last: all blocks together do not fit into a cache
  const std::size_t slot_bytes_;  // bytes in a slot: a block, or enough for control segments if no data is received
  RDMABuffer memory_;
  std::uintptr_t memory_begin_ = 0;
  std::uint32_t memory_key_ = 0;
  std::size_t slots_at_ =
      0;  // offsets in memory_: the blocks of the slots, control segments, headers of received segments
  std::size_t control_at_ = 0;
  std::size_t headers_at_ = 0;
  std::size_t block_bytes_ = 0;  // of outgoing blocks; final after exchange_hello()

  mutable BiasedLock lock_{register_for_membarrier()};  // biased to one thread, because mostly only one writes or reads
  Turn<std::condition_variable_any> turn_;              // for polling without the lock
  std::array<Completion, 16> batch_;  // used by the polling thread; a member, so that it is created once
  bool abandoned_ = false;
  std::optional<Error> failed_;
  std::optional<Completion> failure_;  // the first request that failed, until the reason is known
  Deadline failure_deadline_ = Deadline::never();
  std::vector<std::shared_ptr<const void>> dropped_;
  static constexpr std::uint32_t kIsPart = 0xffffffff;  // in arrived_: marks the slot of an announcement

  // Sending
  std::optional<StreamHello> peer_;
  std::vector<Sent> sent_;  // indexed by position; its size is a power of two
  std::uint64_t posted_ = 0;
  std::uint64_t completed_ = 0;
  std::uint64_t signaled_until_ = 0;  // completed_ will reach this value: the position behind the last signaled request
  std::uint32_t unsignaled_ = 0;      // requests in a row
  Ring<Ready> ready_;                 // slices to be sent
  std::size_t ready_sent_ = 0;        // bytes of the first slice that were sent
  std::vector<std::uint32_t> free_blocks_;            // local blocks; the last one was sent last
  std::uint32_t current_ = kNoBlock;                  // the lent block
  std::size_t filled_ = 0;                            // bytes written to it
  std::uint64_t looked_ = 0;                          // value of signaled_until_ when lend() last polled
  std::deque<std::shared_ptr<const void>> borrowed_;  // kept objects of slices that are not sent yet, the oldest first
  std::deque<Announced> announced_;                   // parts that the peer has not read yet, the oldest first
  std::size_t announced_sent_ = 0;                    // announced_ entries that were sent
  Credits peers_receives_;
  bool waited_for_peer_ = false;
  std::optional<std::uint32_t> hello_slot_;  // the receive that HELLO has taken; posted again before END is sent
  bool end_wanted_ = false;
  bool end_sent_ = false;
  bool peer_finished_ = false;
  bool peer_aborted_ = false;  // the peer may be gone

  // Receiving
  std::uint32_t lent_ = 0;              // slots that the application holds
  std::shared_ptr<StreamLink> kept_;    // this object, kept by lent slots after the stream is gone
  std::vector<std::uint32_t> arrived_;  // lengths, by slot
  Ring<std::uint32_t> queue_;           // slots with data that the application has not taken
  Credits receives_;
  std::deque<Part> parts_;              // announced parts, in order, until they are taken
  std::size_t parts_waiting_ = 0;       // the last entries of parts_ for which no READ was posted yet
  std::uint32_t parts_unreported_ = 0;  // parts that were read and not reported to the peer
  std::uint64_t message_rest_ = 0;      // bytes of the current message whose parts have not been announced yet
  std::uint64_t message_at_ = 0;
  bool starved_ = false;  // whether the pool had no block
  bool end_received_ = false;
  bool end_read_ = false;
  bool finished_sent_ = false;

  StreamCounts counts_;
};

}  // namespace rdmacomm
