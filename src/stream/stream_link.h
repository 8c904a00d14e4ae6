// stream_link.h - the engine of streams: segments over a channel, credits, and who waits for what.
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

/// One end of a stream. What is sent is a queue of slices, which are sent as the peer's credits allow; what comes is a
/// queue of slots, each a receive with a place for a header and one for a block.
///
/// The peer has receives for as many data segments as it gives credits for, and control_receives() more for all others,
/// which are bounded without credits: of each kind there is one (HELLO and FINISHED share theirs), but for kCredit and
/// kTaken, which only who sends data is told. Each kCredit tells of a share of all blocks, or is sent when the peer has
/// used up what the ones before have told: so at most kCreditShare are under way, and no segment ever waits for a
/// receive. Those receives have blocks, too, where data can come, since any segment may meet any of them; so each one
/// more is a block more that the data goes through.
///
/// Threads: one writes, one reads, any releases. All state is behind lock_. Who waits polls for all: one at a time
/// sleeps in EndPoint::wait() without the lock, the others wait for it to come back.
class StreamLink : public std::enable_shared_from_this<StreamLink> {
 public:
  static constexpr int kCreditShare = 2;
  static constexpr int kControlSends = 16;
  // Send slots that others leave: what ends a stream can always be sent.
  static constexpr std::uint64_t kSlotsForEnds = 4;
  static constexpr std::uint64_t kSlotsForCredits = kSlotsForEnds + 2;
  static constexpr std::uint64_t kSlotsForReads = kSlotsForCredits + 2;
  static constexpr std::size_t kControlSlot = 512;  // of memory, for a segment's header, or all of a control segment
  static_assert(SegmentHeader::kBytes + kMaxControlBytes <= kControlSlot);

  /// pool  of a stream of messages; empty: of one of bytes
  [[nodiscard]] static Result<std::shared_ptr<StreamLink>> open(EndPoint endpoint, RDMAChannel& channel,
                                                                BufferPool pool, const StreamOptions& options,
                                                                Deadline deadline);
  /// For HELLO and, later, FINISHED; END; ABORT; and the peer's credits.
  [[nodiscard]] static int control_receives(const StreamOptions& options) noexcept {
    return 3 + (options.writes() ? kCreditShare : 0);
  }
  /// More than a stream of bytes needs: parts that are announced, or read, and the words that they were.
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
  /// The same as a message of its own.
  [[nodiscard]] Status commit_message(std::size_t count);
  /// Announces a part of a message, which the peer reads where it is. Waits until fewer than kMaxAnnounced are.
  [[nodiscard]] Status announce(BufferLease lease, std::uint64_t message_bytes, std::uint64_t offset,
                                Deadline deadline);
  /// A block of the pool; waits for one.
  [[nodiscard]] Result<BufferLease> take(std::size_t bytes, Deadline deadline);
  /// In one part: what both sides' pools have.
  [[nodiscard]] std::size_t part_bytes() const noexcept;
  [[nodiscard]] Status write_from(const BufferSlice& slice, std::shared_ptr<const void> keep, Deadline deadline);
  [[nodiscard]] Status flush(Deadline deadline);
  [[nodiscard]] Status finish(Deadline deadline);
  [[nodiscard]] Status close(Deadline deadline);
  /// A data segment, or the end.
  struct Arrived {
    /// Of a large message, which was read.
    struct Part {
      BufferLease lease;
      std::uint64_t message_bytes = 0;
      std::uint64_t offset = 0;
    };
    bool is_end = false;
    std::uint32_t slot = 0;  // lent until release()
    BufferSlice slice{};
    std::optional<Part> part;  // instead
  };
  /// The oldest one.
  [[nodiscard]] Status next(Deadline deadline, Arrived& arrived);
  /// What was lent last may outlive the stream, and keeps the link until then.
  void release(std::uint32_t slot) noexcept;
  void abort(std::string_view reason) noexcept;
  /// The stream goes: nothing is posted any more, and nothing is outstanding on return.
  void leave() noexcept;

  [[nodiscard]] Status status() const;
  [[nodiscard]] StreamCounts counts() const;
  [[nodiscard]] std::size_t block_bytes() const noexcept { return block_bytes_; }
  [[nodiscard]] const EndPoint& endpoint() const noexcept { return endpoint_; }

 private:
  /// Holds lock_; what was kept for requests is dropped behind it, as that may lead into another stream, or this one.
  class Guard;
  static constexpr std::uint32_t kNoBlock = 0xffffffff;
  enum class What : std::uint8_t { kBlock, kBorrowed, kAnnouncement };
  struct Ready {
    BufferSlice slice{};
    What what = What::kBlock;
    std::uint32_t block = kNoBlock;  // which of this end's it is
  };
  /// A request, and what is free again when it is done.
  struct Sent {
    enum class Frees : std::uint8_t { kNothing, kBlock, kBorrowed } frees = Frees::kNothing;
    std::uint32_t block = kNoBlock;
  };
  /// A part that this side has announced.
  struct Announced {
    Announcement announcement{};
    BufferLease lease{};
  };
  /// One that the peer has.
  struct Part {
    Announcement announcement{};
    BufferLease lease{};        // where it goes; empty: the pool had none yet
    std::uint64_t read_as = 0;  // the READ's id
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
  [[nodiscard]] static Error broken(const std::string& what);  // a rule, by the peer
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
  [[nodiscard]] bool has_parts_to_read() const noexcept { return parts_waiting_ > 0 || parts_untold_ > 0 || starved_; }
  /// Whether there is a reason to call pump().
  [[nodiscard]] bool has_work() const noexcept {
    return !ready_.empty() || has_parts_to_read() || end_wanted_ != end_sent_ || end_read_ != finished_sent_ ||
           owes_credit();
  }
  void pop_ready() noexcept;
  [[nodiscard]] bool send_announcement();
  void pump();
  [[nodiscard]] bool send_ready();
  /// Many releases are told together; a few, where the peer has nothing left to send with.
  [[nodiscard]] bool owes_credit() const noexcept {
    const std::uint32_t owed = receives_.untold();
    if (owed == 0 || end_received_) return false;
    return owed >= credit_step_ || receives_.in_use_as_told() == static_cast<std::uint32_t>(options_.read_blocks);
  }
  [[nodiscard]] bool send_credit();
  [[nodiscard]] bool send_data(const BufferSlice& data, Sent sent);
  [[nodiscard]] bool post(std::span<const BufferSlice> parts, Immediate immediate, Sent sent, bool signaled);
  void wait_for_sends(Guard& guard, Deadline deadline);
  [[nodiscard]] bool send_control(SegmentKind kind, std::span<const std::byte> payload, std::uint32_t value = 0);
  void note_posted(Sent sent, bool told) noexcept {
    sent_[posted_ & (sent_.size() - 1)] = sent;
    ++posted_;
    unsignaled_ = told ? 0 : unsignaled_ + 1;
    if (told) told_ = posted_;
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
  const bool immediate_;              // data goes by immediate data
  const std::uint32_t credit_step_;   // releases that are told together
  const std::uint32_t signal_every_;  // data segments
  const bool looks_early_;            // for the block that was sent last: all of them are more than a cache has
  const std::size_t slot_bytes_;  // of a slot's block: a block, or, where no data comes, enough for control segments
  RDMABuffer memory_;
  std::uintptr_t memory_begin_ = 0;
  std::uint32_t memory_key_ = 0;
  std::size_t slots_at_ =
      0;  // where in memory_ the slots' blocks are, the control segments, and the headers of received ones
  std::size_t control_at_ = 0;
  std::size_t headers_at_ = 0;
  std::size_t block_bytes_ = 0;  // of what is sent, after exchange_hello()

  mutable BiasedLock lock_{register_for_membarrier()};  // of who writes, or reads, and nearly always does nothing else
  Turn<std::condition_variable_any> turn_;              // to poll without the lock
  std::array<Completion, 16> batch_;                    // of who polls: made once
  bool left_ = false;
  std::optional<Error> failed_;
  std::optional<Completion> failure_;  // the first request that failed, until its reason is known
  Deadline failure_deadline_ = Deadline::never();
  std::vector<std::shared_ptr<const void>> dropped_;
  static constexpr std::uint32_t kIsPart = 0xffffffff;  // in arrived_: the slot of an announcement

  // Sending
  std::optional<StreamHello> peer_;
  std::vector<Sent> sent_;  // by position; its size is a power of two
  std::uint64_t posted_ = 0;
  std::uint64_t completed_ = 0;
  std::uint64_t told_ = 0;                  // completed_ will be at least so many: there the last signaled one is done
  std::uint32_t unsignaled_ = 0;            // in a row
  Ring<Ready> ready_;                       // to be sent
  std::size_t ready_sent_ = 0;              // bytes of the first
  std::vector<std::uint32_t> free_blocks_;  // of this end's; the last one was sent last
  std::uint32_t current_ = kNoBlock;        // the one that is lent
  std::size_t filled_ = 0;                  // of it
  std::uint64_t looked_ = 0;                // told_, when lend() looked what is done
  std::deque<std::shared_ptr<const void>> borrowed_;  // what is kept for slices that are not sent, the oldest first
  std::deque<Announced> announced_;                   // not read by the peer yet, the oldest first
  std::size_t announced_sent_ = 0;                    // of those
  Credits peers_receives_;
  bool waited_for_peer_ = false;
  std::optional<std::uint32_t> hello_slot_;  // where HELLO has come, until there is an END to be answered
  bool end_wanted_ = false;
  bool end_sent_ = false;
  bool peer_finished_ = false;
  bool peer_aborted_ = false;  // and may be gone

  // Receiving
  std::uint32_t lent_ = 0;              // slots that the application has
  std::shared_ptr<StreamLink> kept_;    // this, by those, when the stream is gone
  std::vector<std::uint32_t> arrived_;  // lengths, by slot
  Ring<std::uint32_t> queue_;           // slots with data that the application has not taken
  Credits receives_;
  std::deque<Part> parts_;          // that are announced, in order, until they are taken
  std::size_t parts_waiting_ = 0;   // the last so many of them are not asked for yet
  std::uint32_t parts_untold_ = 0;  // are here, and the peer does not know
  std::uint64_t message_rest_ = 0;  // of the message whose parts come
  std::uint64_t message_at_ = 0;
  bool starved_ = false;  // the pool had no block
  bool end_received_ = false;
  bool end_read_ = false;
  bool finished_sent_ = false;

  StreamCounts counts_;
};

}  // namespace rdmacomm
