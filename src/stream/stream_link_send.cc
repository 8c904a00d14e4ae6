// The engine of streams: sending.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/hot_inline.h"
#include "rdmacomm/channel.h"
#include "stream/stream_link.h"
#include "stream/stream_link_guard.h"

namespace rdmacomm {
namespace {

/// Data of this size takes so long to send that a poll for completions adds no measurable cost.
constexpr std::size_t kWorthALook = std::size_t{64} << 10;

}  // namespace

// Writing -------------------------------------------------------------------------------------------------------------

Status StreamLink::check_writable() const {
  if (failed_) return *failed_;
  if (end_wanted_) return make_error(Errc::kWrongState, "nothing can be written to a stream after finish()");
  if (!options_.writes()) {
    return make_error(Errc::kWrongState,
                      "the stream was opened without write_blocks and borrowed_blocks, so it can only read");
  }
  if (peer_->read_blocks > 0) return {};
  return make_error(Errc::kWrongState, "the peer of the stream has no read_blocks: nothing can be written to it");
}

Result<std::span<std::byte>> StreamLink::lend(Deadline deadline) {
  Guard guard(*this);
  if (failed_ || end_wanted_ || peer_->read_blocks == 0) return check_writable().error();
  if (options_.write_blocks == 0) {
    return make_error(Errc::kWrongState, "the stream was opened without write_blocks, so it has no blocks to lend");
  }
  if (current_ == kNoBlock) {
    if (Status found = find_block(guard, deadline); !found) return found.error();
  }
  return write_block(current_).bytes().first(block_bytes_).subspan(filled_);
}

/// Prefers the block that was sent last, because it is still in the processor's cache. So this polls for completions
/// before it takes a block that has been free for longer.
Status StreamLink::find_block(Guard& guard, Deadline deadline) {
  if (looks_early_ && std::exchange(looked_, signaled_until_) != signaled_until_) {
    poll_now();
    pump();
  }
  if (free_blocks_.empty()) {
    const Status waited = wait_until(guard, deadline, [this] { return !free_blocks_.empty() || failed_; });
    if (!failed_ && !waited) return waited;
  }
  if (failed_) return *failed_;
  current_ = free_blocks_.back();
  free_blocks_.pop_back();
  return {};
}

Status StreamLink::commit(std::size_t count) {
  const Guard guard(*this);
  if (count > (current_ == kNoBlock ? 0 : block_bytes_ - filled_)) [[unlikely]]
    detail::die_of_misuse("RDMAStream::commit(): more bytes are committed than were lent", nullptr);
  filled_ += count;
  if (filled_ == block_bytes_) queue_block();
  push();
  return ended();
}

Status StreamLink::write_from(const BufferSlice& slice, std::shared_ptr<const void> keep, Deadline deadline) {
  Guard guard(*this);
  if (Status writable = check_writable(); !writable) return writable;
  if (options_.borrowed_blocks == 0) {
    return make_error(Errc::kInvalidArgument, "the stream was opened without borrowed_blocks");
  }
  if (slice.size() == 0) return {};
  const Status waited = wait_until(guard, deadline, [this] { return may_borrow() || failed_; });
  if (failed_) return *failed_;
  if (!waited) return waited;
  queue_current();
  ready_.push({slice, What::kBorrowed});
  borrowed_.push_back(std::move(keep));
  pump();
  // Poll, so that the owner gets the memory back while it is still in the processor's cache.
  if (!ready_.empty() || !may_borrow() || slice.size() >= kWorthALook) {
    poll_now();
    pump();
  }
  return ended();
}

Status StreamLink::flush(Deadline deadline) {
  Guard guard(*this);
  if (failed_) return *failed_;
  queue_current();
  const Status waited = wait_until(guard, deadline, [this] { return ready_.empty() || failed_; });
  return failed_ ? Status(*failed_) : waited;
}

Status StreamLink::finish(Deadline deadline) {
  Guard guard(*this);
  if (!peer_finished_) {
    if (failed_) return *failed_;
    queue_current();
    end_wanted_ = true;
    const Status waited = wait_until(guard, deadline, [this] { return peer_finished_ || failed_; });
    if (!peer_finished_) return failed_ ? Status(*failed_) : waited;
  }
  // The peer's answer may arrive before the completions of the last requests, which end the use of borrowed memory.
  wait_for_sends(guard, deadline);
  return {};
}

Status StreamLink::close(Deadline deadline) {
  Guard guard(*this);
  const auto closed = [this] { return peer_finished_ && finished_sent_; };
  if (!failed_) {
    queue_current();
    end_wanted_ = true;
    const auto comes = [this] { return end_read_ || end_is_there() || front_is_there() || failed_; };
    const Status waited = wait_until(guard, deadline, comes);
    if (!comes()) return waited;
    if (!end_is_there() && front_is_there()) abort_locked("the stream was closed before all data was read");
    if (!failed_) end_read_ = true;
  }
  const Status waited = wait_until(guard, deadline, [&] { return closed() || failed_; });
  if (!closed()) return failed_ ? Status(*failed_) : waited;
  // The peer waits for the last segment, and the application may close the local end after the return.
  wait_for_sends(guard, deadline);
  return {};
}

void StreamLink::abort(std::string_view reason) noexcept {
  const Guard guard(*this);
  abort_locked(reason);
}

void StreamLink::abort_locked(std::string_view reason) {
  if (failed_) return;
  send_abort(reason);
  fail(make_error(Errc::kAborted, "the stream was aborted locally: " + std::string(reason)));
}

// The queue -----------------------------------------------------------------------------------------------------------

void StreamLink::queue_current() {
  if (filled_ > 0) queue_block();
}

/// Sends the block at once if nothing is queued before it and the peer has room, which is the usual case.
RDMACOMM_HOT_INLINE void StreamLink::queue_block() {
  const std::uint32_t block = std::exchange(current_, kNoBlock);
  const BufferSlice data = write_block(block).first(static_cast<std::uint32_t>(std::exchange(filled_, 0)));
  if (ready_.empty() && !failed_ && peer_has_room() && has_slot_for_data() &&
      send_data(data, {Sent::Frees::kBlock, block})) {
    return;
  }
  ready_.push({data, What::kBlock, block});
}

/// Sends as much of the queue as possible without waiting.
RDMACOMM_HOT_INLINE void StreamLink::push() {
  if (ready_.empty() && !has_parts_to_read()) [[likely]]
    return;
  pump();
  if (ready_.empty()) return;
  poll_now();
  pump();
}

Status StreamLink::commit_message(std::size_t count) {
  const Guard guard(*this);
  if (current_ == kNoBlock || count > block_bytes_) [[unlikely]]
    detail::die_of_misuse("MessageStream::commit(): more bytes are committed than were lent", nullptr);
  filled_ = count;
  queue_block();
  push();
  return ended();
}

/// Sends everything that can be sent now.
void StreamLink::pump() {
  if (failed_ || abandoned_ || !peer_) return;
  if (has_parts_to_read()) read_parts();
  while (!ready_.empty() && send_ready()) continue;
  if (end_wanted_ && !end_sent_ && ready_.empty()) {
    make_room_for_finished();
    if (failed_) return;
    end_sent_ = send_control(SegmentKind::kEnd, StreamEnd{counts_.bytes_written}.encode());
  }
  if (end_read_ && !finished_sent_ && receives_.in_use() == 0) {
    finished_sent_ = send_control(SegmentKind::kFinished, {});
  }
  if (owes_credit() && free_slots() > kSlotsForEnds && send_credit()) ++counts_.credits_sent;
}

/// Sends one segment of the first ready slice. False: not possible now.
bool StreamLink::send_ready() {
  if (!peer_has_room()) {
    if (!std::exchange(waited_for_peer_, true)) ++counts_.waits_for_peer;
    return false;
  }
  if (!has_slot_for_data()) return false;
  Ready& first = ready_.front();
  if (first.what == What::kAnnouncement) return send_announcement();
  const std::size_t bytes = std::min(first.slice.size() - ready_sent_, block_bytes_);
  const bool last = ready_sent_ + bytes == first.slice.size();
  const Sent whole{first.what == What::kBorrowed ? Sent::Frees::kBorrowed : Sent::Frees::kBlock, first.block};
  const BufferSlice part =
      first.slice.slice_unchecked(static_cast<std::uint32_t>(ready_sent_), static_cast<std::uint32_t>(bytes));
  if (!send_data(part, last ? whole : Sent())) return false;
  ready_sent_ += bytes;
  if (last) pop_ready();
  return true;
}

void StreamLink::pop_ready() noexcept {
  ready_sent_ = 0;
  ready_.pop();
}

bool StreamLink::send_control(SegmentKind kind, std::span<const std::byte> payload, std::uint32_t value) {
  if (free_slots() == 0) return false;
  const BufferSlice slot = control(posted_);
  std::ranges::copy(payload, slot.data() + SegmentHeader::kBytes);
  const SegmentHeader header{.kind = kind,
                             .credit = receives_.given_back(),
                             .length = static_cast<std::uint32_t>(payload.size()),
                             .value = value};
  header.encode(slot.bytes().first<SegmentHeader::kBytes>());
  const BufferSlice all = slot.first(SegmentHeader::kBytes + header.length);
  return post({&all, 1}, {}, Sent(), kind != SegmentKind::kCredit);
}

bool StreamLink::send_credit() {
  if (!immediate_) return send_control(SegmentKind::kCredit, {});
  return post({}, immediate_of(SegmentKind::kCredit, receives_.given_back()), Sent(), false);
}

RDMACOMM_HOT_INLINE bool StreamLink::send_data(const BufferSlice& data, Sent sent) {
  const bool signaled =
      sent.frees == Sent::Frees::kBorrowed;  // the owner of the memory waits for it, and may send nothing more
  if (immediate_) {
    if (!post({&data, 1}, immediate_of(SegmentKind::kData, receives_.given_back()), sent, signaled)) return false;
  } else {
    const BufferSlice head = control(posted_).first(SegmentHeader::kBytes);
    const SegmentHeader header{.kind = SegmentKind::kData, .credit = receives_.given_back(), .length = data.size()};
    header.encode(head.bytes().first<SegmentHeader::kBytes>());
    const std::array<BufferSlice, 2> parts{head, data};
    if (!post(parts, {}, sent, signaled)) return false;
  }
  peers_receives_.take();
  ++counts_.blocks_written;
  counts_.bytes_written += data.size();
  return true;
}

/// False: not possible now, or the stream has failed.
RDMACOMM_HOT_INLINE bool StreamLink::post(std::span<const BufferSlice> parts, Immediate immediate, Sent sent,
                                          bool signaled) {
  const bool is_signaled = signaled || unsignaled_ + 1 >= signal_every_;
  const PostFlags flags = is_signaled ? PostFlags::kNone : PostFlags::kUnsignaled;
  const Outcome posted = channel_.post_send(parts, {.id = posted_, .immediate = immediate, .flags = flags});
  if (!posted) [[unlikely]] {
    if (posted != Errc::kSendQueueFull) fail_post(posted);
    return false;
  }
  note_posted(sent, is_signaled);
  receives_.note_reported();
  return true;
}

void StreamLink::fail_post(Outcome refused) {
  const Status end = endpoint_.status();
  fail(end ? make_error(refused.code(), "cannot send on the stream to " + endpoint_.peer()) : end.error());
}

void StreamLink::send_abort(std::string_view reason) {
  if (abandoned_ || !memory_) return;
  (void)send_control(SegmentKind::kAbort, StreamAbort{std::string(reason)}.encode());
}

/// Requests complete in the order in which they were posted.
void StreamLink::on_sent(std::uint64_t id) {
  for (; completed_ <= id; ++completed_) {
    const Sent& sent = sent_[completed_ & (sent_.size() - 1)];
    if (sent.frees == Sent::Frees::kBlock) free_blocks_.push_back(sent.block);
    if (sent.frees != Sent::Frees::kBorrowed) continue;
    if (borrowed_.front()) dropped_.push_back(std::move(borrowed_.front()));
    borrowed_.pop_front();
  }
}

/// Waits until all requests up to the last signaled one are complete, or will never be. After an abort by the peer it
/// does not wait: the peer needs nothing more, and may be gone.
void StreamLink::wait_for_sends(Guard& guard, Deadline deadline) {
  while (completed_ < signaled_until_ && !failure_ && !peer_aborted_ && endpoint_.alive() && !deadline.passed()) {
    poll_now();
    if (completed_ < signaled_until_) (void)sleep(guard, deadline);
  }
}

}  // namespace rdmacomm
