// The receive queue: posting, and turning inbound slots into completions.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "base/hot_inline.h"
#include "softdev/copy.h"
#include "softdev/mr_table.h"
#include "softdev/soft_context.h"
#include "softdev/soft_cq.h"
#include "softdev/soft_qp.h"

namespace rdmacomm::softdev {

RDMACOMM_HOT_INLINE bool SoftQp::slices_writable(const ibv_sge* slices, std::uint32_t count) const noexcept {
  const auto table = soft_context_.registrations().entries();
  return std::all_of(slices, slices + count, [&](const ibv_sge& slice) {
    return slice.length == 0 ||
           find_range(table, slice.lkey, pd_number_, slice.addr, slice.length, IBV_ACCESS_LOCAL_WRITE) != nullptr;
  });
}

RDMACOMM_HOT_INLINE void SoftQp::lower_floor(std::uint32_t bytes) noexcept {
  if (bytes >= recv_floor_) return;
  recv_floor_ = bytes;
  view_.shared->recv_floor.store(bytes, std::memory_order_relaxed);
}

int SoftQp::post_recv(ibv_recv_wr* wr, ibv_recv_wr** bad) noexcept {
  const std::scoped_lock guard(recv_lock_);
  int error = state_.load(std::memory_order_relaxed) == IBV_QPS_RESET ? EINVAL : 0;
  std::uint32_t position = recv_posted_.load(std::memory_order_relaxed);
  for (; error == 0 && wr != nullptr; wr = wr->next) {
    if (position - recv_polled_.load(std::memory_order_acquire) >= capabilities_.max_recv_wr) error = ENOMEM;
    if (wr->num_sge < 0 || static_cast<std::uint32_t>(wr->num_sge) > capabilities_.max_recv_sge) error = EINVAL;
    if (error != 0) break;
    const auto count = static_cast<std::uint32_t>(wr->num_sge);
    recvs_[position & view_.mask] = {wr->wr_id, count};
    std::copy_n(wr->sg_list, count,
                recv_slices_.data() + std::size_t{position & view_.mask} * capabilities_.max_recv_sge);

    RecvEntry& entry = view_.recv(position);
    entry.count = count;
    entry.malformed = slices_writable(wr->sg_list, count) ? 0 : 1;
    entry.total = 0;
    for (std::uint32_t i = 0; i < count; ++i) entry.total += wr->sg_list[i].length;
    std::copy_n(wr->sg_list, count, entry.scatter());
    const auto floor =
        entry.malformed != 0 ? 0 : static_cast<std::uint32_t>(std::min<std::uint64_t>(entry.total, UINT32_MAX));
    lower_floor(floor);  // before the receive is published: who sees it knows how short it is
    ++position;
  }
  if (error != 0) *bad = wr;
  recv_posted_.store(position, std::memory_order_release);
  view_.shared->posted.store(position, std::memory_order_release);
  // In ERR the receive is flushed at the next poll; whoever sleeps must hear of it.
  if (state_.load(std::memory_order_relaxed) == IBV_QPS_ERR) recv_queue_.notify(true);
  return error;
}

void SoftQp::expect_refusal(std::uint32_t key) noexcept {
  const std::scoped_lock guard(recv_lock_);
  const std::uint32_t end = recv_posted_.load(std::memory_order_relaxed);
  for (std::uint32_t position = recv_polled_.load(std::memory_order_acquire); position != end; ++position) {
    const std::uint32_t at = position & view_.mask;
    const ibv_sge* const slices = recv_slices_.data() + std::size_t{at} * capabilities_.max_recv_sge;
    const auto has_key = [key](const ibv_sge& slice) { return slice.lkey == key; };
    if (std::none_of(slices, slices + recvs_[at].count, has_key)) continue;
    lower_floor(0);
    return;
  }
}

RDMACOMM_HOT_INLINE bool SoftQp::copy_eager(const InSlot& slot, const RecvRecord& record,
                                            const ibv_sge* slices) const noexcept {
  if (!slices_writable(slices, record.count)) return false;
  const std::byte* from = slot.payload;
  std::uint32_t left = slot.bytes;
  for (std::uint32_t i = 0; i < record.count && left != 0; ++i) {
    const std::uint32_t here = std::min(left, slices[i].length);
    copy_small(reinterpret_cast<std::byte*>(slices[i].addr), from, here);
    from += here;
    left -= here;
  }
  return left == 0;
}

RDMACOMM_HOT_INLINE void SoftQp::deliver(const InSlot& slot, SlotHead head, std::uint32_t position,
                                         ibv_wc& wc) noexcept {
  // The record was written by whoever posted the receive, on a thread that this one need not know otherwise.
  (void)recv_posted_.load(std::memory_order_acquire);
  const RecvRecord& record = recvs_[position & view_.mask];
  const ibv_sge* slices = recv_slices_.data() + std::size_t{position & view_.mask} * capabilities_.max_recv_sge;
  wc.wr_id = record.wr_id;
  wc.status = static_cast<ibv_wc_status>(head.status);
  wc.opcode = static_cast<ibv_wc_opcode>(IBV_WC_RECV + head.opcode);
  wc.vendor_err = 0;
  wc.byte_len = slot.bytes;
  wc.imm_data = slot.immediate;
  wc.qp_num = qp_base.qp_num;
  wc.src_qp = attributes_.dest_qp_num;
  wc.wc_flags = head.has_immediate != 0 ? IBV_WC_WITH_IMM : 0;
  // The memory was registered when the receive was posted; a registration given up since then is found here.
  if (head.eager != 0 && !copy_eager(slot, record, slices)) wc.status = IBV_WC_LOC_PROT_ERR;
}

void SoftQp::notify_receiver() noexcept {
  const std::scoped_lock guard(service_mutex_);
  if (!destroyed_) recv_queue_.notify(true);
}

int SoftQp::poll_receives(int count, ibv_wc* out) noexcept {
  std::uint32_t position = recv_polled_.load(std::memory_order_relaxed);
  int found = 0;
  while (found < count) {
    const InSlot& slot = view_.slot(position);
    const SlotHead head = slot.head.load(std::memory_order_acquire);
    if (head.sequence != position + 1) {
      // Nothing came. In ERR nothing will, once no initiator is at work here: then what is posted is flushed.
      if (state_.load(std::memory_order_relaxed) != IBV_QPS_ERR) break;
      if (position == recv_posted_.load(std::memory_order_acquire) || busy()) break;
      if (slot.head.load(std::memory_order_acquire).sequence == position + 1) continue;
      out[found] = {};
      out[found].wr_id = recvs_[position & view_.mask].wr_id;
      out[found].status = IBV_WC_WR_FLUSH_ERR;
      out[found].opcode = IBV_WC_RECV;
      out[found].qp_num = qp_base.qp_num;
    } else {
      deliver(slot, head, position, out[found]);
      if (out[found].status != IBV_WC_SUCCESS) enter_error();
    }
    ++found;
    recv_polled_.store(++position, std::memory_order_release);
  }
  return found;
}

}  // namespace rdmacomm::softdev
