// The faults of a send queue: holds, fails and loses requests before they are executed.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "softdev/faults/device_faults.h"
#include "softdev/memory/requests.h"
#include "softdev/queues/premises.h"
#include "softdev/queues/rnr_timer.h"
#include "softdev/queues/soft_qp.h"

namespace rdmacomm::softdev {

int SoftQp::device_error() const noexcept {
  return premises_.faults != nullptr && premises_.faults->has_failed() ? EIO : 0;
}

std::array<std::uint8_t, 16> SoftQp::peer_of(const ibv_send_wr& wr) const noexcept {
  std::array<std::uint8_t, 16> gid{};
  const ibv_ah_attr& to = service_ == Service::kDatagram ? SoftAh::from(wr.wr.ud.ah).attributes : attributes_.ah_attr;
  if (to.is_global != 0) std::memcpy(gid.data(), to.grh.dgid.raw, gid.size());
  return gid;
}

/// The request is the next one to be executed.
void SoftQp::begin(WaitingRequest& waiting) noexcept {
  waiting.is_begun = true;
  waiting.is_not_ready = false;
  waiting.faults = faults_ == nullptr ? RequestFaults{} : faults_->next(waiting.wr.opcode, peer_of(waiting.wr));
  waiting.held_until = waiting.posted_at + waiting.faults.delay;
  if (waiting.faults.slow.count() != 0) {
    waiting.held_until = std::max(waiting.held_until, Clock::now()) + waiting.faults.slow;
  }
}

void SoftQp::cause(const FaultEffect& effect) noexcept {
  DeviceFaults& faults = *premises_.faults;
  switch (effect.rule->action) {
    case FaultAction::kLink: return faults.take_link_down(effect.time);
    case FaultAction::kDeviceFatal: is_ending_ = true; return faults.fail_device();
    case FaultAction::kOverrun: is_ending_ = true; return faults.overrun(qp_base.send_cq, verbs());
    case FaultAction::kDie:
    case FaultAction::kFreeze: break;
    default: {
      const ibv_event_type event = effect.rule->event;
      const bool is_of_queue_pair = event == IBV_EVENT_COMM_EST || event == IBV_EVENT_SQ_DRAINED ||
                                    event == IBV_EVENT_PATH_MIG || event == IBV_EVENT_PATH_MIG_ERR;
      return is_of_queue_pair ? raise(event) : faults.report_port(event);
    }
  }
  const pid_t target = wire_ == nullptr ? 0 : wire_->target_process();
  cause_at(effect.rule->at_peer ? target : getpid(), effect);
}

/// process  0: on another host, or it has ended. Then only this queue pair sees the effect.
void SoftQp::cause_at(pid_t process, const FaultEffect& effect) noexcept {
  if (effect.rule->action == FaultAction::kDie) {
    target_is_gone_ = true;
    if (process != 0) premises_.faults->kill(process);
    return;
  }
  if (process == 0) {
    target_frozen_until_ = Clock::now() + effect.time;
  } else {
    premises_.faults->freeze(process, effect.time);
  }
}

bool SoftQp::has_fault(WaitingRequest& waiting) noexcept {
  if (!waiting.is_begun) begin(waiting);
  return waiting.faults.any() || is_ending_ || hold_by_link(waiting).has_value();
}

std::optional<ExecResult> SoftQp::hold_or_fail(WaitingRequest& waiting) noexcept {
  if (!waiting.is_begun) begin(waiting);
  const std::optional<ExecResult> result = fault_of(waiting);
  held_by_ = result ? result->outcome() : ExecOutcome::kDone;
  return result;
}

std::optional<ExecResult> SoftQp::fault_of(WaitingRequest& waiting) noexcept {
  RequestFaults& faults = waiting.faults;
  const bool lacks_target = wire_ != nullptr && wire_->lacks_target();
  while (!faults.effects.empty()) {
    const FaultEffect effect = faults.effects.front();
    if (effect.rule->at_peer && lacks_target) return ExecOutcome::kUnreachable;
    faults.effects.erase(faults.effects.begin());
    cause(effect);
  }
  if (is_ending_) return ExecOutcome::kBusy;
  if (!is_for_here(waiting.wr.opcode)) {
    if (const auto held = hold_by_link(waiting)) return held;
  }
  const bool is_timed = faults.delay.count() != 0 || faults.slow.count() != 0;
  if (is_timed && Clock::now() < waiting.held_until) return ExecOutcome::kBusy;
  if (faults.not_ready_tries != 0) {
    if (lacks_target) return ExecOutcome::kUnreachable;
    if (const auto held = hold_while_not_ready(waiting)) return held;
  }
  if (faults.failure) return lacks_target ? ExecResult(ExecOutcome::kUnreachable) : fail_by_fault(waiting);
  if (faults.is_lost) return ExecResult::lost(static_cast<std::uint32_t>(message_bytes(waiting.wr)));
  return std::nullopt;
}

/// The link is down, or the target's process was ended or stopped.
std::optional<ExecResult> SoftQp::hold_by_link(const WaitingRequest& waiting) noexcept {
  ExecOutcome reason = ExecOutcome::kDone;
  if (target_is_gone_) {
    reason = ExecOutcome::kLost;
  } else if (premises_.faults->link_is_down() ||
             (target_frozen_until_ != Clock::time_point{} && Clock::now() < target_frozen_until_)) {
    reason = ExecOutcome::kUnreachable;
  } else {
    return std::nullopt;
  }
  if (is_reliable(service_)) return reason;
  return ExecResult::lost(static_cast<std::uint32_t>(message_bytes(waiting.wr)));
}

/// Each try takes one RNR delay of the target. If the tries are more than the attributes allow, the request waits
/// until give_up() ends it.
std::optional<ExecResult> SoftQp::hold_while_not_ready(WaitingRequest& waiting) noexcept {
  std::uint32_t& tries = waiting.faults.not_ready_tries;
  const bool is_limited = attributes_.rnr_retry != kInfiniteRnrRetry;
  if (is_limited && tries > attributes_.rnr_retry) return ExecOutcome::kReceiverNotReady;
  // A target on another host has not told its timer yet.
  const std::uint32_t code = wire_ == nullptr ? attributes_.min_rnr_timer : wire_->rnr_timer_code();
  if (!waiting.is_not_ready) {
    waiting.is_not_ready = true;
    waiting.held_until = Clock::now() + tries * rnr_delay(code);
  }
  if (Clock::now() < waiting.held_until) return ExecOutcome::kReceiverNotReady;
  tries = 0;
  return std::nullopt;
}

ExecResult SoftQp::fail_by_fault(const WaitingRequest& waiting) noexcept {
  if (wire_ != nullptr) wire_->report_refused(*waiting.faults.failure);
  return ExecResult::refused(*waiting.faults.failure);
}

}  // namespace rdmacomm::softdev
