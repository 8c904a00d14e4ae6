#include "softdev/queues/arrival_order.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/hot_inline.h"
#include "softdev/queues/soft_qp.h"

namespace rdmacomm::softdev {

void ArrivalOrder::set_queue_pairs(std::span<SoftQp* const> queue_pairs, Stamping stamping) {
  sources_.clear();
  next_.clear();
  firsts_.clear();
  firsts_.reserve(queue_pairs.size());  // later calls do not allocate
  end_ = 0;
  some_failed_.store(false, std::memory_order_seq_cst);  // before the states are read: see note_failure()
  for (SoftQp* const qp : queue_pairs) {
    sources_.push_back({qp});
    next_.push_back(qp->next_message());
    qp->stamp_messages(stamping);
    if (qp->has_failed()) note_failure();
  }
}

/// Looks at a source of which no receive is known. Returns the stamp of its first receive, or kNoStamp.
RDMACOMM_HOT_INLINE std::uint64_t ArrivalOrder::look_at(std::size_t at) noexcept {
  Source& source = sources_[at];
  // The receives that are seen at once. The more, the fewer looks an application needs that polls for one at a time.
  constexpr int kAhead = 16;
  if (const std::uint64_t stamp = next_[at].stamp(); stamp != kNoStamp) {
    source.known = source.queue_pair->waiting_receives(kAhead);
    return stamp;
  }
  const bool may_flush = some_failed_.load(std::memory_order_relaxed);
  if (!may_flush || !source.queue_pair->flushes_receive()) [[likely]]
    return kNoStamp;
  source.known = kAhead;  // at most: deliver() stops where the receives end
  return source.queue_pair->flush_stamp();
}

/// Looks at all sources of which no receive is known. Returns the earliest stamp that was found, or kNoStamp.
std::uint64_t ArrivalOrder::look() noexcept {
  std::uint64_t found = kNoStamp;
  const bool may_flush = some_failed_.load(std::memory_order_relaxed);
  for (std::size_t at = 0, end = next_.size(); at < end; ++at) {
    if (!may_flush && !next_[at].has_arrived()) [[likely]]
      continue;
    if (sources_[at].known != 0) continue;
    const std::uint64_t stamp = look_at(at);
    if (stamp == kNoStamp) continue;
    firsts_.push_back({stamp, at});
    std::ranges::push_heap(firsts_, std::greater(), &First::stamp);
    found = std::min(found, stamp);
  }
  return found;
}

int ArrivalOrder::poll(int count, ibv_wc* out) noexcept {
  // A round delivers nothing if the receives that it found last seem to be the first of all: they wait for the next
  // look, too. Only wrong stamps or invalid messages of a peer can cause several such rounds. Then the receives are
  // delivered without another look.
  constexpr int kMostInVain = 8;
  int in_vain = 0;
  int found = 0;
  for (bool looked = false;; looked = true) {
    const int more = deliver(count - found, out + found);
    found += more;
    in_vain = more == 0 ? in_vain + 1 : 0;
    if (found >= count || in_vain > kMostInVain + 1) return found;
    if (looked && firsts_.empty() && end_ == kNoStamp) return found;
    end_ = look();
    if (in_vain > kMostInVain) end_ = kNoStamp;
  }
}

/// Delivers known receives that are earlier than end_.
int ArrivalOrder::deliver(int count, ibv_wc* out) noexcept {
  int found = 0;
  while (found < count && !firsts_.empty() && firsts_.front().stamp < end_) {
    std::ranges::pop_heap(firsts_, std::greater(), &First::stamp);  // to the back
    First& first = firsts_.back();
    const std::uint64_t next = firsts_.size() == 1 ? kNoStamp : firsts_.front().stamp;
    Source& source = sources_[first.at];
    const int most = std::min(source.known, count - found);
    const int polled = source.queue_pair->poll_receives_before(std::min(next, end_), most, out + found);
    found += polled;
    const NextMessage before = std::exchange(next_[first.at], source.queue_pair->next_message());
    source.known -= polled;
    first.stamp = polled != 0 && source.known != 0 ? next_[first.at].stamp() : kNoStamp;
    if (first.stamp == kNoStamp) {
      source.known = 0;
      // If an invalid message keeps its slot, see SoftQp::deliver(), there is nothing new to see.
      const bool stays = polled == 0 && before.sequence == next_[first.at].sequence;
      first.stamp = stays ? kNoStamp : look_at(first.at);
      end_ = std::min(end_, first.stamp);  // it was seen just now, so it waits for the next look
    }
    if (first.stamp == kNoStamp) {
      firsts_.pop_back();
    } else {
      std::ranges::push_heap(firsts_, std::greater(), &First::stamp);
    }
  }
  return found;
}

}  // namespace rdmacomm::softdev
