// The send queue: posts, executes, keeps and completes requests.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/hot_inline.h"
#include "base/logging.h"
#include "softdev/common/device_limits.h"
#include "softdev/memory/memory_windows.h"
#include "softdev/memory/placed_slices.h"
#include "softdev/memory/requests.h"
#include "softdev/queues/premises.h"
#include "softdev/queues/rnr_timer.h"
#include "softdev/queues/sender_news.h"
#include "softdev/queues/soft_cq.h"
#include "softdev/queues/soft_qp.h"
#include "softdev/tcp/tcp_socket.h"

namespace rdmacomm::softdev {
namespace {

/// The opcode of the completion; IBV_WC_RECV means that this device does not have the operation.
ibv_wc_opcode completion_opcode(ibv_wr_opcode opcode) noexcept {
  if (opcode == kWrFlush) return kWcFlush;
  if (opcode == kWrAtomicWrite) return kWcAtomicWrite;
  switch (opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_INV:
    case IBV_WR_SEND_WITH_IMM: return IBV_WC_SEND;
    case IBV_WR_BIND_MW: return IBV_WC_BIND_MW;
    case IBV_WR_LOCAL_INV: return IBV_WC_LOCAL_INV;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM: return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ: return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP: return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD: return IBV_WC_FETCH_ADD;
    default: return IBV_WC_RECV;
  }
}

bool is_refused_by_target(ibv_wc_status status) noexcept {
  return status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_REM_OP_ERR;
}

}  // namespace

RDMACOMM_HOT_INLINE bool SoftQp::has_room_for_slices(const ibv_send_wr& wr) const noexcept {
  return static_cast<std::uint32_t>(wr.num_sge) <= capabilities_.max_send_sge;
}

/// True for a SEND or WRITE that needs no checks except its number of slices and the checks of the wire.
RDMACOMM_HOT_INLINE bool SoftQp::has_nothing_to_check(const ibv_send_wr& wr) const noexcept {
  return is_plain(wr.opcode) && (wr.send_flags & IBV_SEND_INLINE) == 0 && service_ != Service::kDatagram;
}

RDMACOMM_HOT_INLINE int SoftQp::check_send(const ibv_send_wr& wr) const noexcept {
  if (has_nothing_to_check(wr)) [[likely]]
    return has_room_for_slices(wr) ? 0 : EINVAL;
  if (completion_opcode(wr.opcode) == IBV_WC_RECV) return EOPNOTSUPP;
  if (!has_room_for_slices(wr)) return EINVAL;
  const bool needs_read_depth = brings_bytes(wr.opcode);
  if (needs_read_depth && (attributes_.max_rd_atomic == 0 || !is_reliable(service_))) return EINVAL;
  if (service_ == Service::kDatagram) {
    const bool is_send = wr.opcode == IBV_WR_SEND || wr.opcode == IBV_WR_SEND_WITH_IMM;
    if (!is_send || wr.wr.ud.ah == nullptr || wr.wr.ud.remote_qpn > kMulticastQpn) return EINVAL;
  }
  if (is_atomic(wr.opcode) && (wr.num_sge != 1 || wr.sg_list[0].length != 8)) return EINVAL;
  if (is_for_connected(wr.opcode)) {
    if (service_ != Service::kReliable) return EINVAL;
    if (wr.opcode == kWrFlush) return wr.num_sge == 0 && FlushRequest::of(wr).is_valid() ? 0 : EINVAL;
    return message_bytes(wr) == sizeof(std::uint64_t) ? 0 : EINVAL;  // may be inline in any queue pair
  }
  if (wr.opcode == IBV_WR_BIND_MW) {
    const auto& bind = wr.bind_mw;
    return bind.mw == nullptr || (bind.bind_info.mr == nullptr && bind.bind_info.length != 0) ? EINVAL : 0;
  }
  if ((wr.send_flags & IBV_SEND_INLINE) == 0) return 0;
  if (needs_read_depth) return EINVAL;
  return message_bytes(wr) > capabilities_.max_inline_data ? EINVAL : 0;
}

RDMACOMM_HOT_INLINE void SoftQp::finish(const ibv_send_wr& wr, ibv_wc_status status, std::uint32_t bytes) noexcept {
  const std::uint32_t position = send_finished_.load(std::memory_order_relaxed);
  SendRecord& record = sends_[position & send_mask_];
  record.wr_id = wr.wr_id;
  record.bytes = bytes;
  record.opcode = static_cast<std::uint8_t>(completion_opcode(wr.opcode));
  record.status = static_cast<std::uint8_t>(status);
  record.signaled = signal_all_ || (wr.send_flags & IBV_SEND_SIGNALED) != 0;
  if (status != IBV_WC_SUCCESS) sends_failed_ = true;
  if (record.signaled || status != IBV_WC_SUCCESS) ++send_reported_;
  send_finished_.store(position + 1, std::memory_order_release);
  // If others wait, the caller reports it.
  news_->store(SenderNews::word(position + 1, false), std::memory_order_release);
}

/// The number of finished requests has changed, or requests begin or cease to wait.
void SoftQp::report_news() noexcept {
  const std::uint32_t finished = send_finished_.load(std::memory_order_relaxed);
  news_->store(SenderNews::word(finished, needs_retries()), std::memory_order_release);
}

void SoftQp::report_news_at(std::atomic<std::uint32_t>* word) noexcept {
  const std::scoped_lock guard(send_lock_);
  news_ = word != nullptr ? word : &unread_news_;
  report_news();
}

/// The number of READs and atomics at the target if a further one begins now. One is in progress until the application
/// has polled its completion or a later one: a NIC may have sent all of them.
std::uint32_t SoftQp::reads_with_another() const noexcept {
  const std::uint32_t freed = send_freed_.load(std::memory_order_relaxed);
  std::uint32_t count = 1;
  for (std::size_t i = 1; i < pending_.size() && count < attributes_.max_rd_atomic; ++i) {
    if (brings_bytes(pending_[i].wr.opcode)) ++count;
  }
  for (std::uint32_t position = send_finished_.load(std::memory_order_relaxed);
       position != freed && count < attributes_.max_rd_atomic; --position) {
    const std::uint8_t opcode = sends_[(position - 1) & send_mask_].opcode;
    if (opcode == IBV_WC_RDMA_READ || opcode == IBV_WC_COMP_SWAP || opcode == IBV_WC_FETCH_ADD) ++count;
  }
  return count;
}

/// Any request but a SEND or WRITE.
ExecResult SoftQp::execute_unusual(const ibv_send_wr& wr) noexcept {
  if (is_for_here(wr.opcode)) return execute_here(wr);
  if (brings_bytes(wr.opcode)) {
    const bool may_be_too_many = wire_->target_read_depth() < attributes_.max_rd_atomic;
    wire_->expect_reads(may_be_too_many ? reads_with_another() : 1);
  }
  const ExecResult result = wire_->exec(wr);
  return result.succeeded() ? result : reconsider(wr, result);
}

ExecResult SoftQp::execute_here(const ibv_send_wr& wr) noexcept {
  MemoryWindows& windows = premises_.windows;
  if (wr.opcode == IBV_WR_BIND_MW) return ExecResult::refused(windows.bind({number(), pd_number_}, wr));
  if (!windows.invalidate(wr.invalidate_rkey, qp_base.qp_num)) return ExecResult::refused(IBV_WC_LOC_QP_OP_ERR);
  // A stopped initiator may still write to the window's memory, see docs/soft_device.md.
  (void)initiators_.wait();
  return ExecResult::done(0);
}

/// Executes a request with a slice that is not registered, or that needs translation (iova). The wires do not
/// translate.
ExecResult SoftQp::execute_placed(const ibv_send_wr& wr) noexcept {
  PlacedSlices placed;
  if (!placed.place(memory().table, pd_number_, slices_of(wr), needed_locally(wr.opcode))) {
    return ExecResult::refused(IBV_WC_LOC_PROT_ERR);
  }
  ibv_send_wr there = wr;
  there.sg_list = placed.get().data();
  there.send_flags |= IBV_SEND_INLINE;  // they were checked above
  return wire_->exec(there);
}

RDMACOMM_HOT_INLINE ExecResult SoftQp::execute(const ibv_send_wr& wr) noexcept {
  if (!is_plain(wr.opcode)) [[unlikely]]
    return execute_unusual(wr);
  const ExecResult result = wire_->exec(wr);
  return result.succeeded() ? result : reconsider(wr, result);
}

/// On an unreliable service, a request succeeds even if it does not reach the target or the target refuses it.
ExecResult SoftQp::reconsider(const ibv_send_wr& wr, ExecResult result) noexcept {
  if (result.is_done() && result.status() == IBV_WC_LOC_PROT_ERR) result = execute_placed(wr);
  const bool stays =
      result.outcome() == ExecOutcome::kBusy || (result.is_done() && !is_refused_by_target(result.status()));
  if (is_reliable(service_) || stays) return result;
  return ExecResult::lost(static_cast<std::uint32_t>(message_bytes(wr)));
}

/// For a request that has waited. While the port is down, it does not leave.
ExecResult SoftQp::execute_kept(const ibv_send_wr& wr) noexcept {
  if (port_is_up_ || is_for_here(wr.opcode)) return execute(wr);
  return reconsider(wr, ExecOutcome::kUnreachable);
}

/// True if a new request need not wait.
RDMACOMM_HOT_INLINE bool SoftQp::executes_at_once() const noexcept {
  return state_.load(std::memory_order_relaxed) == IBV_QPS_RTS && !keeps_all_ &&
         pending_count_.load(std::memory_order_relaxed) == 0;
}

RDMACOMM_HOT_INLINE void SoftQp::execute_or_keep(const ibv_send_wr& wr) noexcept {
  if (!executes_at_once()) [[unlikely]]
    return keep_or_flush(wr);
  settle(wr, execute(wr));
}

/// For a request that is not executed while it is posted.
void SoftQp::keep_or_flush(const ibv_send_wr& wr) noexcept {
  const ibv_qp_state now = state_.load(std::memory_order_relaxed);
  if (now == IBV_QPS_ERR || now == IBV_QPS_SQE) return finish(wr, IBV_WC_WR_FLUSH_ERR, 0);
  if (!can_fail_ || late_ || tcp_.wire() != nullptr || now != IBV_QPS_RTS) return keep(wr);
  // It is only kept so that a fault can hold it. Without a fault it is executed now.
  store(wr);
  retry_pending_locked();
  if (!pending_.empty()) premises_.threads.wake_retrier();
}

/// Handles the first result of a request.
RDMACOMM_HOT_INLINE void SoftQp::settle(const ibv_send_wr& wr, ExecResult result) noexcept {
  if (result.succeeded()) [[likely]] {
    traffic_->count(wr.opcode, result.bytes(), packet_bytes_);
    return finish(wr, IBV_WC_SUCCESS, result.bytes());
  }
  settle_otherwise(wr, result);
}

/// For a request that did not simply succeed when it was posted.
void SoftQp::count(const ibv_send_wr& wr, ExecResult result) noexcept {
  if (result.succeeded()) return traffic_->count(wr.opcode, result.bytes(), packet_bytes_);
  Traffic& traffic = premises_.local.traffic;
  if (result.is_lost()) {
    traffic.add_sent(result.bytes(), packet_bytes_);
    traffic.add(Count::kDiscarded);
  } else if (result.status() == IBV_WC_RETRY_EXC_ERR) {
    traffic.add(Count::kRetriesExceeded);
  } else if (result.status() == IBV_WC_RNR_RETRY_EXC_ERR) {
    traffic.add(Count::kNotReadyExceeded);
  }
}

void SoftQp::settle_otherwise(const ibv_send_wr& wr, ExecResult result) noexcept {
  if (!result.is_done()) {
    // The retry below sets the reason and the time limit of the wait.
    keep(wr);
    return retry_pending_locked();
  }
  count(wr, result);
  finish(wr, result.status(), result.bytes());
  if (!result.is_lost()) fail_sends_locked();
}

RDMACOMM_HOT_INLINE int SoftQp::check_sendable() const noexcept {
  const ibv_qp_state now = state_.load(std::memory_order_relaxed);
  if (now == IBV_QPS_RTS) [[likely]]
    return 0;
  if (now == IBV_QPS_ERR) return device_error();
  return now == IBV_QPS_SQD || now == IBV_QPS_SQE ? 0 : EINVAL;
}

RDMACOMM_HOT_INLINE std::uint32_t SoftQp::send_room() const noexcept {
  return capabilities_.max_send_wr - (send_posted_ - send_freed_.load(std::memory_order_acquire));
}

void SoftQp::notify_of_sends() noexcept {
  // Source: ibv_req_notify_cq(3): a failed request also notifies a queue that is armed for solicited completions only.
  send_queue_.notify(std::exchange(sends_failed_, false));
}

int SoftQp::post_send(ibv_send_wr* wr, ibv_send_wr** bad) noexcept {
  const BiasedGuard guard(send_lock_);
  const std::uint32_t reported = send_reported_;
  int error = 0;
  // Short path for a single request that can be executed at once.
  if (wr != nullptr && wr->next == nullptr && executes_at_once() && has_nothing_to_check(*wr) &&
      has_room_for_slices(*wr) && send_room() != 0) [[likely]] {
    ++send_posted_;
    settle(*wr, execute(*wr));
  } else {
    error = post_list(wr);
    if (error != 0) *bad = wr;
  }
  notify_sender(reported);
  return error;
}

/// Posts from `wr` on, as far as possible. Returns 0, or an errno value; then `wr` is the first request that was not
/// posted.
int SoftQp::post_list(ibv_send_wr*& wr) noexcept {
  int error = check_sendable();
  for (; error == 0 && wr != nullptr; wr = wr->next) {
    error = check_send(*wr);
    if (error == 0 && send_room() == 0) error = ENOMEM;
    if (error != 0) break;
    ++send_posted_;
    execute_or_keep(*wr);
  }
  return error;
}

int SoftQp::post_all(std::span<ibv_send_wr> requests) noexcept {
  const BiasedGuard guard(send_lock_);
  int error = check_sendable();
  for (const ibv_send_wr& wr : requests) {
    if (error == 0) error = check_send(wr);
  }
  if (error != 0) return error;
  if (requests.size() > send_room()) return ENOMEM;
  const std::uint32_t reported = send_reported_;
  for (const ibv_send_wr& wr : requests) {
    ++send_posted_;
    execute_or_keep(wr);
  }
  notify_sender(reported);
  return 0;
}

void SoftQp::post_by_calls(std::uint64_t operations) {
  builder_ = std::make_unique<RequestBuilder>(operations);
  RequestBuilder::install(*this);
}

void SoftQp::store(const ibv_send_wr& wr) noexcept {
  if (pending_.empty()) waiting_for_ = ExecOutcome::kDone;
  WaitingRequest& waiting = pending_.push_back();
  waiting.wr = wr;
  waiting.is_begun = false;
  if (can_fail_) waiting.posted_at = Clock::now();
  waiting.slices.assign(wr.sg_list, wr.sg_list + wr.num_sge);
  waiting.inline_payload.clear();
  if ((wr.send_flags & IBV_SEND_INLINE) != 0) {
    for (const ibv_sge& slice : waiting.slices) {
      const auto* from = reinterpret_cast<const std::byte*>(slice.addr);
      waiting.inline_payload.insert(waiting.inline_payload.end(), from, from + slice.length);
    }
    const std::byte* from = waiting.inline_payload.data();
    for (ibv_sge& slice : waiting.slices) {
      slice.addr = reinterpret_cast<std::uint64_t>(from);
      from += slice.length;
    }
  }
  waiting.wr.sg_list = waiting.slices.data();
  if (service_ == Service::kDatagram) {
    waiting.address = SoftAh::from(wr.wr.ud.ah);
    waiting.wr.wr.ud.ah = &waiting.address;
  }
  pending_count_.fetch_add(1, std::memory_order_relaxed);
  report_news();
}

void SoftQp::keep(const ibv_send_wr& wr) noexcept {
  store(wr);
  if (tcp_.wire() != nullptr && !late_) return tcp_.start_locked();
  premises_.threads.wake_retrier();
}

/// The time of all tries. 4.096 us * 2^timeout for each; a timeout of 0 waits without limit.
std::chrono::nanoseconds SoftQp::time_of_tries() const noexcept {
  return (attributes_.retry_cnt + 1) * std::chrono::nanoseconds(std::int64_t{4096} << attributes_.timeout);
}

std::chrono::nanoseconds SoftQp::patience(ExecOutcome outcome) const noexcept {
  const bool connects = tcp_.wire() != nullptr && outcome != ExecOutcome::kLost && port_is_up_;
  return connects ? std::max<std::chrono::nanoseconds>(time_of_tries(), kVanishedAfter) : time_of_tries();
}

/// A request begins to wait. A target on another host counts itself.
void SoftQp::count_wait(ExecOutcome outcome) noexcept {
  Traffic& traffic = premises_.local.traffic;
  if (outcome == ExecOutcome::kReceiverNotReady) {
    traffic.add(Count::kNotReadyReceived);
    if (tcp_.wire() == nullptr) traffic.add(Count::kNotReadySent);
  } else if (outcome != ExecOutcome::kBusy) {
    traffic.add(Count::kRetries);
  }
}

bool SoftQp::give_up(ExecOutcome outcome, ibv_wc_status& status) noexcept {
  status = outcome == ExecOutcome::kReceiverNotReady ? IBV_WC_RNR_RETRY_EXC_ERR : IBV_WC_RETRY_EXC_ERR;
  // Over TCP, a target that has closed in order looks like one that has died. So it gets the time of all retries, as on
  // a NIC.
  if (outcome == ExecOutcome::kLost && (tcp_.wire() == nullptr || attributes_.timeout == 0)) return true;
  const Clock::time_point now = Clock::now();
  if (waiting_for_ != outcome) {
    waiting_for_ = outcome;
    count_wait(outcome);
    if (outcome == ExecOutcome::kUnreachable && tcp_.wire() != nullptr) tcp_.wire()->begin_waiting();
    if (outcome == ExecOutcome::kReceiverNotReady) {
      const std::uint32_t code = tcp_.wire() == nullptr ? wire_->rnr_timer_code() : tcp_.wire()->rnr_timer_code();
      give_up_at_ = attributes_.rnr_retry == kInfiniteRnrRetry ? Clock::time_point::max()
                                                               : now + attributes_.rnr_retry * rnr_delay(code);
    } else if (outcome == ExecOutcome::kBusy || (attributes_.timeout == 0 && is_reliable(service_))) {
      give_up_at_ = Clock::time_point::max();
    } else {
      give_up_at_ = now + patience(outcome);
    }
  }
  // A target that answers does not need the time for a connection.
  const bool is_put_off = outcome == ExecOutcome::kUnreachable && tcp_.wire() != nullptr && tcp_.wire()->is_put_off();
  if (is_put_off && give_up_at_ != Clock::time_point::max()) give_up_at_ = std::min(give_up_at_, now + time_of_tries());
  return now >= give_up_at_;
}

/// Nothing else tells the user of two misconnected queue pairs what is wrong.
void SoftQp::log_misconnection() const {
  constexpr int kMost = 16;
  static std::atomic<int> logged{0};
  if (!is_reliable(service_) || logged.load(std::memory_order_relaxed) >= kMost) return;
  logged.fetch_add(1, std::memory_order_relaxed);
  RDMACOMM_LOG(WARNING) << "queue pair " << number() << " has no connection to queue pair " << attributes_.dest_qp_num
                        << " (retries exceeded): "
                        << (port_is_up_ ? wire_->why_unreachable() : "the port of its own device is down");
}

void SoftQp::retry_pending_locked(std::size_t most) noexcept {
  if (tcp_.wire() != nullptr) return tcp_.advance_locked();
  for (; most != 0 && !pending_.empty() && may_continue(); --most) {
    WaitingRequest& first = pending_.front();
    const std::optional<ExecResult> fault = can_fail_ ? hold_or_fail(first) : std::nullopt;
    ExecResult result = fault ? *fault : execute_kept(first.wr);
    if (!result.is_done()) {
      ibv_wc_status status{};
      if (!give_up(result.outcome(), status)) return;
      if (!fault && result.outcome() == ExecOutcome::kUnreachable) log_misconnection();
      result = ExecResult::refused(status);
    }
    settle_first(result);
  }
}

/// In SQD, only requests that have begun continue.
bool SoftQp::may_continue() const noexcept {
  const ibv_qp_state now = state_.load(std::memory_order_relaxed);
  return now == IBV_QPS_RTS || (now == IBV_QPS_SQD && draining_ != 0);
}

/// The first waiting request has finished.
void SoftQp::settle_first(const ExecResult& result) noexcept {
  const ibv_send_wr& wr = pending_.front().wr;
  count(wr, result);
  finish(wr, result.status(), result.bytes());
  pending_.pop_front();
  pending_count_.fetch_sub(1, std::memory_order_relaxed);
  report_news();
  waiting_for_ = ExecOutcome::kDone;
  if (result.status() != IBV_WC_SUCCESS) return fail_sends_locked();
  if (draining_ != 0 && --draining_ == 0) note_drained();
}

bool SoftQp::retry_pending() noexcept {
  const std::scoped_lock guard(send_lock_);
  if (pending_.empty() || (wire_ == nullptr && tcp_.wire() == nullptr)) return true;
  const std::uint32_t reported = send_reported_;
  retry_pending_locked();
  notify_sender(reported);
  return pending_.empty() || wire_ == nullptr || !wire_->lacks_target();
}

void SoftQp::find_target() noexcept {
  std::unique_ptr<TargetSearch> search;
  std::uint32_t life = 0;
  {
    const std::scoped_lock guard(send_lock_);
    if (wire_ != nullptr && wire_->lacks_target() && !pending_.empty()) search = wire_->search();
    life = view_.shared->life.load(std::memory_order_relaxed);
  }
  if (search == nullptr) return;
  search->run();  // without the lock, so that other threads can post
  const std::scoped_lock guard(send_lock_);
  // After a RESET it may be connected to another queue pair.
  if (wire_ == nullptr || view_.shared->life.load(std::memory_order_relaxed) != life) return;
  const std::uint32_t reported = send_reported_;
  wire_->take_found(*search);
  (void)choose_cell();  // without memory, the old one counts
  retry_pending_locked();
  notify_sender(reported);
}

void SoftQp::flush_pending() noexcept {
  if (tcp_.wire() != nullptr) tcp_.wire()->abandon();
  for (std::size_t i = 0; i < pending_.size(); ++i) finish(pending_[i].wr, IBV_WC_WR_FLUSH_ERR, 0);
  pending_.clear();
  pending_count_.store(0, std::memory_order_relaxed);
  report_news();
}

int SoftQp::waiting_sends(int enough) const noexcept {
  const std::uint32_t finished = send_finished_.load(std::memory_order_acquire);
  int count = 0;
  for (std::uint32_t position = send_scanned_; position != finished && count < enough; ++position) {
    const SendRecord& record = sends_[position & send_mask_];
    if (record.signaled || record.status != IBV_WC_SUCCESS) ++count;
  }
  return count;
}

void SoftQp::retry_while_polled() noexcept {
  // A late request is executed only if the poll has found no other completion. So no buffer is read or written earlier
  // than necessary.
  if (late_ && send_scanned_ != send_finished_.load(std::memory_order_relaxed)) return;
  const BiasedTry guard(send_lock_);
  if (!guard) return;
  const std::uint32_t before = send_reported_;
  retry_pending_locked(late_ ? 1 : SIZE_MAX);
  notify_sender(before);  // a completion is an event, no matter which thread made it
}

int SoftQp::poll_sends(int count, ibv_wc* out) noexcept {
  if (needs_retries()) retry_while_polled();
  const std::uint32_t finished = send_finished_.load(std::memory_order_acquire);
  int found = 0;
  while (send_scanned_ != finished && found < count) {
    const SendRecord& record = sends_[send_scanned_++ & send_mask_];
    // Without a completion, the application does not know that the request is done. So it stays in the queue until a
    // later completion is polled.
    if (!record.signaled && record.status == IBV_WC_SUCCESS) continue;
    ibv_wc& wc = out[found++];
    wc.wr_id = record.wr_id;
    wc.status = static_cast<ibv_wc_status>(record.status);
    wc.opcode = static_cast<ibv_wc_opcode>(record.opcode);
    wc.vendor_err = 0;
    wc.byte_len = record.bytes;
    wc.qp_num = qp_base.qp_num;
    wc.wc_flags = 0;
    send_freed_.store(send_scanned_, std::memory_order_release);
  }
  return found;
}

}  // namespace rdmacomm::softdev
