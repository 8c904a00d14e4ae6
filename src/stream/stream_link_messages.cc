// The engine of streams: messages. Small messages are sent as data. Large ones are announced, and the peer reads them.
#include <algorithm>

#include "stream/stream_link.h"
#include "stream/stream_link_guard.h"

namespace rdmacomm {

std::size_t StreamLink::part_bytes() const noexcept {
  return std::min<std::size_t>(peer_->part_bytes, pool_.options().largest_block);
}

// Sending -------------------------------------------------------------------------------------------------------------

Status StreamLink::announce(BufferLease lease, std::uint64_t message_bytes, std::uint64_t offset, Deadline deadline) {
  Guard guard(*this);
  if (Status writable = check_writable(); !writable) return writable;
  const auto most = static_cast<std::size_t>(MessageStream::kMaxAnnounced);
  const Status waited = wait_until(guard, deadline, [&] { return announced_.size() < most || failed_; });
  if (failed_) return *failed_;
  if (!waited) return waited;
  const Announcement announcement{.region = lease.remote_region(), .message_bytes = message_bytes, .offset = offset};
  announced_.push_back({announcement, std::move(lease)});
  ready_.push({{}, What::kAnnouncement});
  pump();
  return ended();
}

Result<BufferLease> StreamLink::take(std::size_t bytes, Deadline deadline) {
  Guard guard(*this);
  Result<BufferLease> taken = BufferLease();
  const Status waited = wait_until(guard, deadline, [&] {
    taken = pool_.take(bytes);
    const bool exhausted = taken.code() == Errc::kPoolExhausted;
    if (exhausted) starved_ = true;
    return !exhausted || failed_;
  });
  if (failed_) return *failed_;
  if (!waited) return waited.error();
  if (!taken) return make_error(taken.code(), "a part of a message is larger than the largest block of the pool");
  return taken;
}

bool StreamLink::send_announcement() {
  const Announced& next = announced_[announced_sent_];
  if (!send_control(SegmentKind::kAnnounce, next.announcement.encode())) return false;
  ++announced_sent_;
  peers_receives_.take();
  ++counts_.blocks_written;
  counts_.bytes_written += next.announcement.region.length;
  pop_ready();
  return true;
}

Status StreamLink::on_taken(std::uint32_t count) {
  if (count == 0 || count > announced_sent_) {
    return broken("it acknowledged " + std::to_string(count) + " parts, but " + std::to_string(announced_sent_) +
                  " parts were announced");
  }
  announced_sent_ -= count;
  announced_.erase(announced_.begin(), announced_.begin() + count);
  return {};
}

// Receiving -----------------------------------------------------------------------------------------------------------

Status StreamLink::on_announcement(std::uint32_t slot, std::span<const std::byte> payload) {
  if (Status room = check_room(); !room) return room;
  const auto announcement = Announcement::decode(payload);
  if (!announcement) return announcement.status();
  const std::uint64_t bytes = announcement->region.length;
  if (!pool_ || bytes > pool_.options().largest_block) {
    return broken("it announces a part of " + std::to_string(bytes) +
                  " bytes, which is more than the local pool allows");
  }
  if (parts_.size() - done_parts() >= static_cast<std::size_t>(MessageStream::kMaxAnnounced)) {
    return broken("it announces more than " + std::to_string(MessageStream::kMaxAnnounced) + " parts at the same time");
  }
  const std::uint64_t rest = announcement->message_bytes - announcement->offset;
  const bool follows =
      message_rest_ > 0 ? announcement->offset == message_at_ && rest == message_rest_ : announcement->offset == 0;
  if (!follows) return broken("it announces a part that does not follow the part before it");
  message_at_ = announcement->offset + bytes;
  message_rest_ = rest - bytes;
  enqueue(slot, kIsPart);
  parts_.push_back({.announcement = *announcement});
  ++parts_waiting_;
  ++counts_.blocks_read;
  counts_.bytes_read += bytes;
  return {};
}

std::size_t StreamLink::done_parts() const noexcept {
  return static_cast<std::size_t>(std::ranges::count(parts_, true, &Part::done));
}

/// Reports the parts that were read, and posts READs for announced parts as long as the pool has room.
void StreamLink::read_parts() {
  starved_ = false;
  if (parts_unreported_ > 0 && free_slots() > 0) {
    if (send_control(SegmentKind::kTaken, {}, parts_unreported_)) parts_unreported_ = 0;
  }
  while (parts_waiting_ > 0 && free_slots() > kSlotsForReads) {
    Part& part = parts_[parts_.size() - parts_waiting_];
    auto lease = pool_.take(part.announcement.region.length);
    if (!lease) {
      starved_ = true;
      return;
    }
    part.lease = *std::move(lease);
    if (!post_read(part)) return part.lease.reset();
    --parts_waiting_;
  }
}

bool StreamLink::post_read(Part& part) {
  const Outcome posted = channel_.post_read(part.lease.slice(), part.announcement.region, {.id = posted_});
  if (posted) {
    part.read_as = posted_;
    note_posted(Sent(), true);
    return true;
  }
  if (posted != Errc::kSendQueueFull) fail_post(posted);
  return false;
}

/// Finds the part by the id of its READ, because a part is complete only with its own completion.
void StreamLink::on_part_read(std::uint64_t id) {
  for (Part& each : parts_) {
    if (each.read_as != id || !each.lease || each.done) continue;
    each.done = true;
    ++parts_unreported_;
    return;
  }
}

}  // namespace rdmacomm
