#include "softdev/queues/soft_srq.h"

#include <bit>
#include <cerrno>
#include <mutex>
#include <utility>

#include "softdev/local/local_wire.h"
#include "softdev/memory/mr_table.h"
#include "softdev/queues/premises.h"

namespace rdmacomm::softdev {

SoftSrq::SoftSrq(const Premises& premises, SharedBlock block, std::uint32_t pd_number, const ibv_srq_attr& attributes)
    : ibv_srq{},
      registrations_(premises.local.registrations),
      event_queue_(premises.events),
      block_(std::move(block)),
      view_(block_.mapping.data(), entries(attributes), attributes.max_sge),
      pd_number_(pd_number),
      attributes_(attributes),
      receives_(entries(attributes), attributes.max_sge),
      in_use_(attributes.max_wr) {
  context = &premises.verbs;
  pthread_mutex_init(&mutex, nullptr);
  pthread_cond_init(&cond, nullptr);
  view_.shared->recv_floor.store(UINT32_MAX, std::memory_order_relaxed);
  // The requested number of entries; entry 0 is used first.
  for (std::uint32_t entry = attributes.max_wr; entry > 0; --entry) free_.push_back(entry - 1);
}

std::uint32_t SoftSrq::entries(const ibv_srq_attr& attributes) noexcept {
  return std::bit_ceil(attributes.max_wr);
}

ReceiveMemory SoftSrq::memory() const noexcept {
  return {registrations_.entries(), pd_number_};
}

void SoftSrq::append_locked(std::uint32_t entry) noexcept {
  const std::uint32_t position = view_.shared->posted.load(std::memory_order_relaxed);
  view_.order[position & view_.mask].store(entry, std::memory_order_relaxed);
  view_.shared->posted.store(position + 1, std::memory_order_release);
}

int SoftSrq::post_recv(ibv_recv_wr* wr, ibv_recv_wr** bad) noexcept {
  const std::scoped_lock guard(lock_);
  if (free_.size() == attributes_.max_wr) view_.shared->recv_floor.store(UINT32_MAX, std::memory_order_relaxed);
  for (; wr != nullptr; wr = wr->next) {
    const bool fits = wr->num_sge >= 0 && static_cast<std::uint32_t>(wr->num_sge) <= attributes_.max_sge;
    if (!fits || free_.empty()) {
      *bad = wr;
      return fits ? ENOMEM : EINVAL;
    }
    const std::uint32_t entry = free_.back();
    free_.pop_back();
    const std::span<const ibv_sge> given = receives_.put(entry, *wr);
    const FilledEntry filled = fill_entry(view_.recv(entry), given, memory());
    receives_.set_room(entry, filled.room);
    lower_floor(view_.shared->recv_floor, filled.floor);
    in_use_[entry] = 1;
    append_locked(entry);
  }
  return 0;
}

int SoftSrq::modify(const ibv_srq_attr& attributes, int mask) noexcept {
  if ((mask & IBV_SRQ_MAX_WR) != 0) return EOPNOTSUPP;  // as the capability bits say
  if ((mask & IBV_SRQ_LIMIT) == 0) return mask == 0 ? 0 : EINVAL;
  if (attributes.srq_limit > attributes_.max_wr) return EINVAL;
  view_.shared->limit.store(attributes.srq_limit, std::memory_order_release);
  return 0;
}

void SoftSrq::query(ibv_srq_attr& attributes) noexcept {
  attributes = attributes_;
  attributes.srq_limit = view_.shared->limit.load(std::memory_order_relaxed);
}

void SoftSrq::give_back(std::uint32_t entry) noexcept {
  const std::scoped_lock guard(lock_);
  if (!holds(entry)) return;
  in_use_[entry] = 0;
  free_.push_back(entry);
}

void SoftSrq::put_back(std::uint32_t entry) noexcept {
  const std::scoped_lock guard(lock_);
  if (!holds(entry)) return;
  for (std::uint32_t at = first_left(); at != view_.shared->posted.load(std::memory_order_relaxed); ++at) {
    if (view_.order[at & view_.mask].load(std::memory_order_relaxed) == entry) return;
  }
  append_locked(entry);
}

/// The position in the ring of the first entry that no message has taken. Initiators write `taken`, so the result is
/// limited: at most the length of the ring is left.
std::uint32_t SoftSrq::first_left() const noexcept {
  const std::uint32_t posted = view_.shared->posted.load(std::memory_order_relaxed);
  const std::uint32_t taken = view_.shared->taken.load(std::memory_order_acquire);
  return posted - taken <= entry_count() ? taken : posted - entry_count();
}

void SoftSrq::forget_initiator(std::uint32_t qpn, QpShared& target) noexcept {
  SrqShared& shared = *view_.shared;
  if (shared.holder.load(std::memory_order_acquire) != qpn) return;
  // It died as the holder. If it had stored the entry in `claimed` without taking it, the entry is still the next one
  // in the ring.
  const std::uint32_t taken = shared.taken.load(std::memory_order_relaxed);
  const bool not_taken = taken != shared.posted.load(std::memory_order_acquire) && target.claimed != 0 &&
                         view_.order[taken & view_.mask].load(std::memory_order_relaxed) + 1 == target.claimed;
  if (not_taken) target.claimed = 0;
  shared.holder.store(0, std::memory_order_release);
}

void SoftSrq::expect_refusal(std::uint32_t key) noexcept {
  const std::scoped_lock guard(lock_);
  const std::uint32_t end = view_.shared->posted.load(std::memory_order_relaxed);
  for (std::uint32_t at = first_left(); at != end; ++at) {
    const std::uint32_t entry = view_.order[at & view_.mask].load(std::memory_order_relaxed);
    if (holds(entry) && receives_.uses(entry, key)) refuse(view_.recv(entry), view_.shared->recv_floor);
  }
}

void SoftSrq::raise(ibv_event_type type) {
  ibv_async_event event{};
  event.event_type = type;
  event.element.srq = this;
  event_queue_.push(event, events);
}

}  // namespace rdmacomm::softdev
