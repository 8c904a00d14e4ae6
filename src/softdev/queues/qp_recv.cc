// The receive queue: posts receives, and turns inbound slots into completions.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "base/hot_inline.h"
#include "softdev/memory/mr_table.h"
#include "softdev/queues/premises.h"
#include "softdev/queues/queue_pairs.h"
#include "softdev/queues/soft_cq.h"
#include "softdev/queues/soft_qp.h"
#include "softdev/queues/soft_srq.h"
#include "softdev/queues/soft_xrcd.h"

namespace rdmacomm::softdev {
namespace {

/// The status that an initiator gave to a receive. A status that this device's initiators never give becomes
/// IBV_WC_GENERAL_ERR, because a peer can write any number, and not every number is a value of the enumeration.
ibv_wc_status known_status(std::uint8_t status) noexcept {
  if (status == IBV_WC_SUCCESS) [[likely]]
    return IBV_WC_SUCCESS;
  if (status == IBV_WC_LOC_LEN_ERR) return IBV_WC_LOC_LEN_ERR;
  return status == IBV_WC_LOC_PROT_ERR ? IBV_WC_LOC_PROT_ERR : IBV_WC_GENERAL_ERR;
}

}  // namespace

ReceiveMemory SoftQp::memory() const noexcept {
  return {registrations_.entries(), pd_number_};
}

int SoftQp::post_recv(ibv_recv_wr* wr, ibv_recv_wr** bad) noexcept {
  const std::scoped_lock guard(recv_lock_);
  int error = state_.load(std::memory_order_relaxed) == IBV_QPS_RESET ? EINVAL : 0;
  std::uint32_t position = recv_posted_.load(std::memory_order_relaxed);
  if (srq_ != nullptr) error = EINVAL;
  for (; error == 0 && wr != nullptr; wr = wr->next) {
    const std::uint32_t waiting = position - recv_polled_.load(std::memory_order_acquire);
    if (waiting >= capabilities_.max_recv_wr) error = ENOMEM;
    if (wr->num_sge < 0 || static_cast<std::uint32_t>(wr->num_sge) > capabilities_.max_recv_sge) error = EINVAL;
    if (error != 0) break;
    const std::span<const ibv_sge> given = receives_.put(position & view_.mask, *wr);
    // Stored before the receive is published, so that a reader of the receive also sees its size.
    const FilledEntry filled = fill_entry(view_.recv(position), given, memory());
    receives_.set_room(position & view_.mask, filled.room);
    // If all earlier receives have been taken, their sizes do not limit the new ones.
    std::atomic<std::uint32_t>& floor = view_.shared->recv_floor;
    if (filled.floor < floor.load(std::memory_order_relaxed) || waiting == 0) {
      floor.store(filled.floor, std::memory_order_relaxed);
    }
    ++position;
  }
  if (error != 0) *bad = wr;
  const bool failed = has_failed();
  if (failed) posted_late_stamp_.store(recv_queue_.draw_failure_stamp(), std::memory_order_relaxed);
  recv_posted_.store(position, std::memory_order_release);
  view_.shared->posted.store(position, std::memory_order_release);
  // In ERR the next poll flushes the receive, so a sleeping thread must be woken.
  if (failed || has_failed()) recv_queue_.notify(true);
  return error;
}

void SoftQp::expect_refusal(std::uint32_t key) noexcept {
  if (srq_ != nullptr) return;  // it has its own expect_refusal()
  const std::scoped_lock guard(recv_lock_);
  const std::uint32_t end = recv_posted_.load(std::memory_order_relaxed);
  for (std::uint32_t position = recv_polled_.load(std::memory_order_acquire); position != end; ++position) {
    if (receives_.uses(position & view_.mask, key)) refuse(view_.recv(position), view_.shared->recv_floor);
  }
}

/// Delivers to an own receive. The receive's memory may have been deregistered since the message was handed over.
RDMACOMM_HOT_INLINE void SoftQp::deliver_own(const InSlot& slot, SlotHead head, std::uint32_t position,
                                             ibv_wc& wc) noexcept {
  const std::uint32_t place = position & view_.mask;
  wc.wr_id = receives_.wr_id(place);
  if ((head.contents & SlotContents::kEager) != 0) {
    if (!copy_eager(slot, wc.byte_len, receives_.slices(place), memory())) wc.status = IBV_WC_LOC_PROT_ERR;
  } else if (wc.byte_len > receives_.room(place)) [[unlikely]] {
    check_length(wc);
  }
}

/// The same for a shared receive.
void SoftQp::deliver_shared(const InSlot& slot, SlotHead head, std::uint32_t entry, ibv_wc& wc) noexcept {
  wc.wr_id = srq_->wr_id(entry);
  if ((head.contents & SlotContents::kEager) != 0) {
    if (!copy_eager(slot, wc.byte_len, srq_->slices(entry), srq_->memory())) wc.status = IBV_WC_LOC_PROT_ERR;
  } else if (wc.byte_len > srq_->room(entry)) {
    check_length(wc);
  }
  srq_->give_back(entry);
}

/// The message claims to be longer than the receive. Only a WRITE with immediate data may be, because its data is
/// elsewhere.
void SoftQp::check_length(ibv_wc& wc) noexcept {
  if (wc.opcode == IBV_WC_RECV && wc.status == IBV_WC_SUCCESS) wc.status = IBV_WC_LOC_LEN_ERR;
}

void SoftQp::name_sender(InSlot& slot, ibv_wc& wc) const noexcept {
  if (service_ == Service::kXrcQueue) {
    wc.qp_num = XrcRoute::of(slot).target_qpn;
    wc.src_qp = XrcRoute::of(slot).source_qpn;
    return;
  }
  const DatagramSource source = DatagramSource::of(slot);
  if (traffic_ != nullptr) {  // an invalid message can be there before RTR
    ++traffic_->received_requests;
    traffic_->received_bytes += wc.byte_len - std::min<std::uint32_t>(wc.byte_len, sizeof(DatagramHeader));
  }
  wc.src_qp = source.qpn;
  wc.slid = source.lid;
  wc.sl = source.service_level;
  wc.dlid_path_bits = 0;
  wc.pkey_index = 0;
  if (source.has_header != 0) wc.wc_flags |= IBV_WC_GRH;
}

void SoftQp::fail_receiver(std::uint32_t qpn) noexcept {
  if (service_ != Service::kXrcQueue) return enter_error();
  const auto target = premises_.queue_pairs.find(qpn);
  if (target == nullptr || target->service_ != Service::kXrc || target->xrc_domain_ == nullptr) return;
  if (target->xrc_domain_->identity() == xrc_domain_->identity()) target->enter_error();
}

RDMACOMM_HOT_INLINE bool SoftQp::deliver(InSlot& slot, SlotHead head, std::uint32_t position, ibv_wc& wc) noexcept {
  // A process that maps the slot can change it at any time, so each part is read once and checked. Any thread may have
  // posted the receive and written its record, so this load needs acquire order.
  const std::uint32_t posted = recv_posted_.load(std::memory_order_acquire);
  std::uint32_t entry = 0;
  if (srq_ == nullptr) {
    if (position == posted) [[unlikely]]
      return false;
  } else {
    entry = std::atomic_ref(SharedReceive::entry(slot)).load(std::memory_order_relaxed);
    if (!srq_->holds(entry)) [[unlikely]]
      return false;
  }
  wc.status = known_status(head.status);
  wc.opcode = static_cast<ibv_wc_opcode>(IBV_WC_RECV + (head.opcode & 1));
  wc.vendor_err = 0;
  wc.byte_len = std::atomic_ref(slot.bytes).load(std::memory_order_relaxed);
  wc.imm_data = slot.immediate;
  wc.qp_num = qp_base.qp_num;
  wc.src_qp = initiator_qpn_.load(std::memory_order_acquire);  // another thread may have connected it
  wc.wc_flags = head.flags;
  if (takes_turns(service_)) name_sender(slot, wc);
  if (srq_ == nullptr) {
    deliver_own(slot, head, position, wc);
  } else {
    deliver_shared(slot, head, entry, wc);
  }
  return true;
}

void SoftQp::return_shared_receives() noexcept {
  if (srq_ == nullptr) return;
  std::uint32_t position = recv_polled_.load(std::memory_order_relaxed);
  for (; view_.slot(position).head.load(std::memory_order_acquire).sequence == position + 1; ++position) {
    srq_->give_back(SharedReceive::entry(view_.slot(position)));
  }
  recv_polled_.store(position, std::memory_order_relaxed);
  if (view_.shared->claimed != 0) srq_->put_back(view_.shared->claimed - 1);
  view_.shared->claimed = 0;
}

int SoftQp::waiting_receives(int enough) const noexcept {
  std::uint32_t position = recv_polled_.load(std::memory_order_relaxed);
  int count = 0;
  while (count < enough && view_.slot(position).head.load(std::memory_order_acquire).sequence == position + 1) {
    ++position;
    ++count;
  }
  return count;
}

/// In ERR: true if a receive is posted at this position, and no initiator is at work that may still fill it. Not
/// inline, so that it does not slow down polls.
bool SoftQp::can_flush(std::uint32_t position) const noexcept {
  return position != recv_posted_.load(std::memory_order_acquire) && !initiators_.may_be_at_work();
}

bool SoftQp::flushes_receive() const noexcept {
  return srq_ == nullptr && has_failed() && can_flush(recv_polled_.load(std::memory_order_relaxed));
}

std::uint64_t SoftQp::flush_stamp() const noexcept {
  const std::uint32_t place = recv_polled_.load(std::memory_order_relaxed);
  const bool late = static_cast<std::int32_t>(place - posted_at_failure_.load(std::memory_order_relaxed)) >= 0;
  return (late ? posted_late_stamp_ : failure_stamp_).load(std::memory_order_relaxed);
}

template <typename Due>
RDMACOMM_HOT_INLINE int SoftQp::poll_while(Due&& due, int count, ibv_wc* out) noexcept {
  std::uint32_t position = recv_polled_.load(std::memory_order_relaxed);
  int found = 0;
  while (found < count) {
    InSlot& slot = view_.slot(position);
    const SlotHead head = slot.head.load(std::memory_order_acquire);
    if (head.sequence != position + 1) {
      // No message. In ERR none will arrive when no initiator is at work here any more. Then the posted receives are
      // flushed.
      if (srq_ != nullptr || state_.load(std::memory_order_acquire) != IBV_QPS_ERR) break;
      if (!can_flush(position)) break;
      if (slot.head.load(std::memory_order_acquire).sequence == position + 1) continue;
      if (!due([this] { return flush_stamp(); })) break;
      out[found] = {};
      out[found].wr_id = receives_.wr_id(position & view_.mask);
      out[found].status = IBV_WC_WR_FLUSH_ERR;
      out[found].opcode = IBV_WC_RECV;
      out[found].qp_num = qp_base.qp_num;
    } else if (!due([&] { return stamp_of(slot, head); })) {
      break;
    } else if (!deliver(slot, head, position, out[found])) {
      // The message is invalid, which initiators of this device never cause, and it uses no receive. With a shared
      // receive queue, skips its slot.
      if (srq_ != nullptr) recv_polled_.store(position + 1, std::memory_order_release);
      enter_error();
      break;
    } else if (out[found].status != IBV_WC_SUCCESS) {
      fail_receiver(out[found].qp_num);
    }
    ++found;
    recv_polled_.store(++position, std::memory_order_release);
  }
  return found;
}

int SoftQp::poll_receives(int count, ibv_wc* out) noexcept {
  return poll_while([](auto&& /*stamp*/) { return true; }, count, out);
}

int SoftQp::poll_receives_before(std::uint64_t end, int count, ibv_wc* out) noexcept {
  bool first = true;
  return poll_while([&](auto&& stamp) { return std::exchange(first, false) || stamp() < end; }, count, out);
}

}  // namespace rdmacomm::softdev
