// The engine of streams: opening, waiting and receiving. Sending: stream_link_send.cc.
#include "stream/stream_link.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/hot_inline.h"
#include "base/logging.h"
#include "rdmacomm/adapter.h"
#include "rdmacomm/channel.h"
#include "rdmacomm/completion.h"
#include "stream/stream_link_guard.h"

namespace rdmacomm {
namespace {

/// A failed request may be an early effect of the end of the endpoint. Its reason arrives later and says more, so wait
/// for it for this time.
constexpr std::chrono::milliseconds kReasonComes{300};
/// How often a waiting thread checks a pool that had no room for a part of a message.
constexpr std::chrono::milliseconds kPoolRefills{1};
/// Blocks of this total size stay in the cache of a core, whichever of them is used next.
constexpr std::size_t kCached = std::size_t{256} << 10;

/// The number of data segments of which one is signaled: small enough that a free block is found while it is in the
/// cache.
std::uint32_t signals(const StreamOptions& options) noexcept {
  const std::size_t share = std::min(static_cast<std::size_t>(options.write_blocks / 4), kCached / options.block_bytes);
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(share, 1, StreamLink::kControlSends / 2));
}

}  // namespace

// Opening -------------------------------------------------------------------------------------------------------------

StreamLink::StreamLink(EndPoint endpoint, RDMAChannel& channel, BufferPool pool, const StreamOptions& options)
    : endpoint_(std::move(endpoint)),
      channel_(channel),
      pool_(std::move(pool)),
      mode_(pool_ ? StreamMode::kMessages : StreamMode::kBytes),
      options_(options),
      send_depth_(options.send_depth() + more_sends(static_cast<bool>(pool_))),
      immediate_(channel.device().limits().immediate_data),
      credit_step_(static_cast<std::uint32_t>(std::max(1, (options.read_blocks + kCreditShare - 1) / kCreditShare))),
      signal_every_(signals(options)),
      looks_early_(static_cast<std::size_t>(options.write_blocks) * options.block_bytes > kCached),
      slot_bytes_(options.read_blocks > 0 ? options.block_bytes : kControlSlot),
      block_bytes_(options.block_bytes),
      sent_(std::bit_ceil(static_cast<std::size_t>(send_depth_))),
      ready_(static_cast<std::size_t>(options.write_blocks + options.borrowed_blocks + MessageStream::kMaxAnnounced)),
      arrived_(static_cast<std::size_t>(options.recv_depth() + more_receives(options, static_cast<bool>(pool_)))),
      queue_(arrived_.size()) {
  for (int block = options.write_blocks - 1; block >= 0; --block) {
    free_blocks_.push_back(static_cast<std::uint32_t>(block));
  }
}

Result<std::shared_ptr<StreamLink>> StreamLink::open(EndPoint endpoint, RDMAChannel& channel, BufferPool pool,
                                                     const StreamOptions& options, Deadline deadline) {
  if (Status valid = options.validate(); !valid) return valid.error();
  std::shared_ptr<StreamLink> link(new StreamLink(std::move(endpoint), channel, std::move(pool), options));
  Status status = link->check_channel();
  if (!status) return status.error();
  status = link->prepare();
  if (status) status = link->exchange_hello(deadline);
  if (status) return link;
  link->abandon();
  return status.error();
}

Status StreamLink::check_channel() const {
  const AdapterConfig& adapter = channel_.config();
  const bool fits = channel_.send_depth() >= send_depth_ &&
                    channel_.recv_depth() >= static_cast<int>(arrived_.size()) && adapter.max_send_slices >= 2 &&
                    adapter.max_recv_slices >= 2;
  if (!fits || channel_.outstanding_recvs() > 0) {
    return make_error(Errc::kInvalidArgument,
                      "channel '" + channel_.name() +
                          "' is too small for the stream, or in use: create it with StreamOptions::channel(), or with "
                          "MessageStream::channel() for a stream of messages, and give both calls the same options");
  }
  const bool pool_serves = !pool_ || (pool_.device() == channel_.device() && pool_.domain() == channel_.domain() &&
                                      allows(pool_.options().remote_access, RemoteAccess::kRead));
  if (!pool_serves) {
    return make_error(
        Errc::kInvalidArgument,
        "the pool of a stream of messages must be in the channel's protection domain, and must let peers read "
        "(BufferPoolOptions::remote_access)");
  }
  const Status waitable = endpoint_.next(channel_, Deadline::after({})).status();
  return waitable.code() == Errc::kTimeout ? Status() : waitable;
}

/// Allocates memory and posts receives: after the barrier in exchange_hello() the peer may send at once.
Status StreamLink::prepare() {
  slots_at_ = static_cast<std::size_t>(options_.write_blocks) * options_.block_bytes;
  control_at_ = slots_at_ + arrived_.size() * slot_bytes_;
  headers_at_ = control_at_ + sent_.size() * kControlSlot;
  const std::size_t all = headers_at_ + arrived_.size() * SegmentHeader::kBytes;
  constexpr std::size_t kPage = 4096;  // all blocks together may exceed 4 GiB, which one block cannot
  const BufferOptions of_memory{.name = "stream " + channel_.name(),
                                .block_bytes = kPage,
                                .block_count = (all + kPage - 1) / kPage,
                                .huge_pages = options_.huge_pages};
  auto memory = channel_.domain() ? RDMABuffer::allocate(channel_.domain(), of_memory)
                                  : RDMABuffer::allocate(channel_.device(), of_memory);
  if (!memory) return memory.status();
  memory_ = std::move(*memory);
  memory_begin_ = reinterpret_cast<std::uintptr_t>(memory_.data());
  memory_key_ = memory_.lkey();
  const Guard guard(*this);
  for (std::uint32_t slot = 0; slot < arrived_.size() && !failed_; ++slot) post_receive(slot);
  return ended();
}

Status StreamLink::exchange_hello(Deadline deadline) {
  if (Status synced = endpoint_.sync_with_peer("rdmacomm.stream." + channel_.name(), deadline); !synced) return synced;
  Guard guard(*this);
  const StreamHello hello{.mode = mode_,
                          .immediate = immediate_,
                          .block_bytes = static_cast<std::uint32_t>(options_.block_bytes),
                          .read_blocks = static_cast<std::uint32_t>(options_.read_blocks),
                          .part_bytes = pool_ ? static_cast<std::uint32_t>(pool_.options().largest_block) : 0};
  (void)send_control(SegmentKind::kHello, hello.encode());
  if (Status waited = wait_until(guard, deadline, [this] { return peer_ || failed_; }); !waited) return waited;
  if (!peer_) return ended();
  block_bytes_ = std::min<std::size_t>(block_bytes_, peer_->block_bytes);
  return {};
}

void StreamLink::abandon() noexcept {
  {
    Guard guard(*this);
    poll_now();
    if (!failed_ && !(end_sent_ && end_read_)) send_abort("the stream was closed before its end");
    wait_for_sends(guard, Deadline::after(EndPoint::kDrainTime));
    abandoned_ = true;
    if (lent_ > 0) kept_ = shared_from_this();
    if (!failed_) fail(make_error(Errc::kStopped, "the stream was closed locally"));
  }
  const Status drained = channel_.drain(Deadline::after(EndPoint::kDrainTime));
  if (!drained) RDMACOMM_LOG(ERROR) << "closing the stream to " << endpoint_.peer() << ": " << drained.message();
  const Guard guard(*this);
  std::ranges::move(borrowed_, std::back_inserter(dropped_));
  borrowed_.clear();
  announced_.clear();
  parts_.clear();
  parts_waiting_ = 0;
}

// Waiting -------------------------------------------------------------------------------------------------------------

void StreamLink::poll_now() {
  if (turn_.taken() || abandoned_) return;
  for (bool full = true; full;) {
    const Polled polled = channel_.poll(batch_);
    if (!polled) {
      return fail(make_error(polled.outcome().code(),
                             "the completion queue of the stream to " + endpoint_.peer() + " has failed"));
    }
    full = polled.size() == batch_.size();
    handle({polled.begin(), polled.end()});
  }
}

Status StreamLink::sleep(Guard& guard, Deadline deadline) {
  if (turn_.taken()) {
    guard.follow(deadline);
    return {};
  }
  Deadline until = failure_ ? deadline.sooner(failure_deadline_) : deadline;
  if (starved_) until = until.sooner(Deadline::after(kPoolRefills));  // nothing reports a free block
  const auto waited = turn_.lead(guard, [&] { return endpoint_.wait(channel_, batch_, until); });
  if (waited) handle(*waited);
  if (!waited && waited.code() != Errc::kTimeout) fail(waited.error());
  return waited.status();
}

Status StreamLink::timed_out() const {
  const std::string held = lent_ == 0 ? ""
                                      : "; the application holds " + std::to_string(lent_) +
                                            " received blocks, and the peer waits for their release";
  return make_error(Errc::kTimeout, "the stream to " + endpoint_.peer() + " made no progress in time" + held);
}

void StreamLink::handle(std::span<const Completion> completions) {
  for (const Completion& each : completions) {
    if (!each.ok()) {
      note_failed(each);
    } else if (each.operation != Operation::kRecv) {
      if (each.operation == Operation::kRead) on_part_read(each.id);
      on_sent(each.id);
    } else if (!failed_) {
      const Status taken = on_segment(each);
      if (taken) continue;
      send_abort(taken.error().context);
      fail(taken.error());
    }
  }
  if (failure_ && !failed_) settle_failure();
}

Error StreamLink::broken(const std::string& what) {
  return make_error(Errc::kBadMessage, "the peer violated the protocol of streams: " + what);
}

void StreamLink::note_failed(const Completion& completion) {
  // A flushed request is only a consequence of another failure.
  if (failed_ || (failure_ && (failure_->error != Errc::kFlushed || completion.error == Errc::kFlushed))) return;
  if (completion.operation == Operation::kRecv && completion.error == Errc::kLocalLength) {
    return fail(broken("it sent a segment of more than " + std::to_string(slot_bytes_) + " bytes"));
  }
  if (!failure_) failure_deadline_ = Deadline::after(kReasonComes);
  failure_ = completion;
}

void StreamLink::settle_failure() {
  if (const Status end = endpoint_.status(); !end) return fail(end.error());
  if (failure_deadline_.passed()) fail(failure_->explain().error());
}

void StreamLink::fail(Error why) {
  if (!failed_) failed_ = std::move(why);
  turn_.notify();
}

// Incoming segments ---------------------------------------------------------------------------------------------------

RDMACOMM_HOT_INLINE void StreamLink::post_receive(std::uint32_t slot) {
  const std::array<BufferSlice, 2> parts{read_header(slot), read_block(slot)};
  const auto list = std::span(parts).subspan(immediate_ ? 1 : 0);
  if (const Outcome posted = channel_.post_recv(list, {.id = slot}); !posted) {
    fail(make_error(posted.code(), "cannot receive on the stream to " + endpoint_.peer()));
  }
}

/// Called before END is sent, because the peer answers it with FINISHED.
void StreamLink::make_room_for_finished() {
  if (hello_slot_) post_receive(*std::exchange(hello_slot_, {}));
}

/// Without immediate data all segments have headers. These are received into separate memory, so that the data begins
/// at the start of its block. With immediate data only control segments have headers, which are received into the
/// block.
RDMACOMM_HOT_INLINE Status StreamLink::on_segment(const Completion& received) {
  const auto slot = static_cast<std::uint32_t>(received.id);
  const BufferSlice block = read_block(slot);
  const BufferSlice head = immediate_ ? block : read_header(slot);
  const auto header = received.has_immediate
                          ? header_of(received.immediate, received.bytes)
                          : SegmentHeader::decode(head.bytes().first<SegmentHeader::kBytes>(), received.bytes);
  if (!header) return header.status();
  if (!peer_ && header->kind != SegmentKind::kHello) return broken("its first segment is not a HELLO");
  if (Status credited = on_credit(header->credit); !credited) return credited;
  if (header->kind == SegmentKind::kData) {
    if (received.has_immediate == immediate_) return on_data(slot, *header);
    return broken("it sent data with a header instead of immediate data, or with immediate data instead of a header");
  }
  const BufferSlice payload =
      block.slice_unchecked(immediate_ && !received.has_immediate ? SegmentHeader::kBytes : 0, header->length);
  if (header->kind == SegmentKind::kAnnounce) return on_announcement(slot, payload.bytes());
  const Status taken = on_control(*header, payload.bytes());
  if (!taken) return taken;
  if (header->kind == SegmentKind::kHello) {
    hello_slot_ = slot;  // kept for FINISHED; no second HELLO comes
  } else {
    post_receive(slot);
  }
  return {};
}

RDMACOMM_HOT_INLINE Status StreamLink::on_credit(std::uint32_t credit) {
  const auto given_back = peers_receives_.give_back_until(credit);
  if (!given_back) [[unlikely]] {
    return broken("it gives credit for " + std::to_string(peers_receives_.newly_given_back(credit)) +
                  " blocks, but it holds only " + std::to_string(peers_receives_.in_use()));
  }
  if (*given_back > 0) waited_for_peer_ = false;
  return {};
}

Status StreamLink::on_control(const SegmentHeader& header, std::span<const std::byte> payload) {
  switch (header.kind) {
    case SegmentKind::kHello: return on_hello(payload);
    case SegmentKind::kCredit: return payload.empty() ? Status() : broken("it sent a CREDIT with data bytes");
    case SegmentKind::kEnd: return on_end(payload);
    case SegmentKind::kTaken:
      return payload.empty() ? on_taken(header.value) : broken("it sent a TAKEN with data bytes");
    case SegmentKind::kFinished:
      if (!end_sent_ || !payload.empty() || peers_receives_.in_use() > 0) {
        return broken("it sent a FINISHED before it had received everything");
      }
      peer_finished_ = true;
      return {};
    default: break;
  }
  peer_aborted_ = true;
  const auto aborted = StreamAbort::decode(payload);
  fail(make_error(Errc::kAborted, "the peer, " + endpoint_.peer() + ", has aborted the stream: " +
                                      (aborted ? aborted->reason : "its reason is malformed")));
  return {};
}

Status StreamLink::on_hello(std::span<const std::byte> payload) {
  if (peer_) return broken("it sent a second HELLO");
  const auto hello = StreamHello::decode(payload);
  if (!hello) return hello.status();
  if (hello->mode != mode_) {
    return make_error(Errc::kIncompatiblePeer, "channel '" + channel_.name() +
                                                   "' has a stream of bytes at one peer and a stream of messages at "
                                                   "the other: open the same kind at both peers");
  }
  if (hello->immediate != immediate_) {
    return make_error(Errc::kIncompatiblePeer,
                      "only one of the two devices of the stream supports immediate data: use devices of one kind");
  }
  peer_ = *hello;
  return {};
}

Status StreamLink::check_room() const {
  if (end_received_) return broken("it sent data after the end");
  if (receives_.in_use() < static_cast<std::uint32_t>(options_.read_blocks)) return {};
  return broken("it sent more than the " + std::to_string(options_.read_blocks) +
                " blocks that it may send without credit");
}

void StreamLink::enqueue(std::uint32_t slot, std::uint32_t length) {
  receives_.take();
  arrived_[slot] = length;
  queue_.push(slot);
}

RDMACOMM_HOT_INLINE Status StreamLink::on_data(std::uint32_t slot, const SegmentHeader& header) {
  if (Status room = check_room(); !room) return room;
  const bool empty = header.length == 0 && mode_ == StreamMode::kBytes;
  if (empty || header.value != 0) return broken("it sent an empty block, or a block whose value field is not 0");
  if (message_rest_ > 0) return broken("it sent a message inside another message");
  enqueue(slot, header.length);
  ++counts_.blocks_read;
  counts_.bytes_read += header.length;
  return {};
}

Status StreamLink::on_end(std::span<const std::byte> payload) {
  const auto end = StreamEnd::decode(payload);
  if (!end) return broken("it sent an END of " + std::to_string(payload.size()) + " bytes, which is not its size");
  if (end_received_ || message_rest_ > 0 || end->bytes != counts_.bytes_read) {
    return broken("it sent an END after " + std::to_string(end->bytes) + " bytes, but " +
                  std::to_string(counts_.bytes_read) + " bytes have arrived");
  }
  end_received_ = true;
  return {};
}

// Reading -------------------------------------------------------------------------------------------------------------

void StreamLink::take_front(Arrived& arrived) {
  const std::uint32_t slot = queue_.front();
  queue_.pop();
  const std::uint32_t length = arrived_[slot];
  if (length != kIsPart) {
    ++lent_;
    arrived.slot = slot;
    arrived.slice = read_block(slot).first(length);
    return;
  }
  Part& part = parts_.front();
  arrived.part = {std::move(part.lease), part.announcement.message_bytes, part.announcement.offset};
  parts_.pop_front();
  release_slot(slot);  // the bytes of the part are in the pool
  pump();
}

Status StreamLink::next(Deadline deadline, Arrived& arrived) {
  Guard guard(*this);
  if (!front_is_there()) {
    const Status waited = wait_until(guard, deadline, [&] { return front_is_there() || end_is_there() || failed_; });
    if (!front_is_there()) {
      if (!end_is_there()) return failed_ ? *failed_ : waited.error();
      arrived.is_end = end_read_ = true;
      pump();
      // The application may close the stream after it has read the end, so FINISHED must be sent by then.
      if (finished_sent_) wait_for_sends(guard, deadline);
      return {};
    }
  }
  take_front(arrived);
  return {};
}

void StreamLink::release(std::uint32_t slot) noexcept {
  std::shared_ptr<StreamLink> last;  // destroyed after the unlock
  const Guard guard(*this);
  release_slot(slot);
  if (has_work()) pump();
  if (--lent_ == 0) last = std::move(kept_);
}

RDMACOMM_HOT_INLINE void StreamLink::release_slot(std::uint32_t slot) {
  receives_.give_back();
  if (!failed_ && !abandoned_) post_receive(slot);
}

Status StreamLink::status() const {
  const std::lock_guard lock(lock_);
  return ended();
}

StreamCounts StreamLink::counts() const {
  const std::lock_guard lock(lock_);
  return counts_;
}

}  // namespace rdmacomm
