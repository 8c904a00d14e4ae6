#include "softdev/soft_srq.h"

#include <bit>
#include <cerrno>
#include <mutex>
#include <utility>

#include "softdev/soft_context.h"

namespace rdmacomm::softdev {

SoftSrq::SoftSrq(SoftContext& soft_context, SharedBlock block, std::uint32_t pd_number, const ibv_srq_attr& attributes)
    : ibv_srq{},
      soft_context_(soft_context),
      block_(std::move(block)),
      view_(block_.mapping.data(), entries(attributes), attributes.max_sge),
      pd_number_(pd_number),
      attributes_(attributes),
      records_(entries(attributes)),
      slices_(std::size_t{entries(attributes)} * attributes.max_sge) {
  context = soft_context.verbs();
  pthread_mutex_init(&mutex, nullptr);
  pthread_cond_init(&cond, nullptr);
  view_.shared->recv_floor.store(UINT32_MAX, std::memory_order_relaxed);
  // As many as were asked for, the first one on top.
  for (std::uint32_t entry = attributes.max_wr; entry > 0; --entry) free_.push_back(entry - 1);
}

std::uint32_t SoftSrq::entries(const ibv_srq_attr& attributes) noexcept {
  return std::bit_ceil(attributes.max_wr);
}

std::span<const ibv_sge> SoftSrq::slices(std::uint32_t entry) const noexcept {
  return {slices_.data() + std::size_t{entry} * attributes_.max_sge, records_[entry].count};
}

ReceiveMemory SoftSrq::memory() const noexcept {
  return {soft_context_.registrations().entries(), pd_number_};
}

void SoftSrq::lower_floor(std::uint32_t bytes) noexcept {
  if (bytes >= view_.shared->recv_floor.load(std::memory_order_relaxed)) return;
  view_.shared->recv_floor.store(bytes, std::memory_order_relaxed);
}

void SoftSrq::append_locked(std::uint32_t entry) noexcept {
  const std::uint32_t position = view_.shared->posted.load(std::memory_order_relaxed);
  view_.order[position & view_.mask].store(entry, std::memory_order_relaxed);
  view_.shared->posted.store(position + 1, std::memory_order_release);
}

int SoftSrq::post_recv(ibv_recv_wr* wr, ibv_recv_wr** bad) noexcept {
  const std::scoped_lock guard(lock_);
  for (; wr != nullptr; wr = wr->next) {
    const bool fits = wr->num_sge >= 0 && static_cast<std::uint32_t>(wr->num_sge) <= attributes_.max_sge;
    if (!fits || free_.empty()) {
      *bad = wr;
      return fits ? ENOMEM : EINVAL;
    }
    const std::uint32_t entry = free_.back();
    free_.pop_back();
    const std::span<const ibv_sge> given(wr->sg_list, static_cast<std::size_t>(wr->num_sge));
    records_[entry] = {wr->wr_id, static_cast<std::uint32_t>(given.size())};
    std::ranges::copy(given, slices_.begin() + static_cast<std::ptrdiff_t>(std::size_t{entry} * attributes_.max_sge));
    lower_floor(fill_entry(view_.recv(entry), given, memory()));
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
  free_.push_back(entry);
}

void SoftSrq::put_back(std::uint32_t entry) noexcept {
  const std::scoped_lock guard(lock_);
  append_locked(entry);
}

void SoftSrq::forget_initiator(std::uint32_t qpn, QpShared& target) noexcept {
  SrqShared& shared = *view_.shared;
  if (shared.holder.load(std::memory_order_acquire) != qpn) return;
  // It died as the holder. An entry that it had written down and not yet taken is still the next in the ring.
  const std::uint32_t taken = shared.taken.load(std::memory_order_relaxed);
  const bool not_taken = taken != shared.posted.load(std::memory_order_acquire) && target.claimed != 0 &&
                         view_.order[taken & view_.mask].load(std::memory_order_relaxed) + 1 == target.claimed;
  if (not_taken) target.claimed = 0;
  shared.holder.store(0, std::memory_order_release);
}

void SoftSrq::expect_refusal(std::uint32_t key) noexcept {
  const std::scoped_lock guard(lock_);
  const std::uint32_t end = view_.shared->posted.load(std::memory_order_relaxed);
  for (std::uint32_t at = view_.shared->taken.load(std::memory_order_acquire); at != end; ++at) {
    const std::uint32_t entry = view_.order[at & view_.mask].load(std::memory_order_relaxed);
    if (std::ranges::find(slices(entry), key, &ibv_sge::lkey) == slices(entry).end()) continue;
    lower_floor(0);
    return;
  }
}

void SoftSrq::raise_limit() {
  ibv_async_event event{};
  event.event_type = IBV_EVENT_SRQ_LIMIT_REACHED;
  event.element.srq = this;
  soft_context_.events().push(event, events);
}

}  // namespace rdmacomm::softdev
