#include "softdev/faults/qp_faults.h"

#include <algorithm>
#include <utility>

#include "softdev/memory/requests.h"

namespace rdmacomm::softdev {
namespace {

constexpr std::uint8_t kReliableKinds = kOnRc | kOnXrc;

/// Statuses that only a responder or its absence causes. An unreliable queue pair never sees them.
bool needs_responder(ibv_wc_status status) noexcept {
  switch (status) {
    case IBV_WC_BAD_RESP_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_OP_ERR:
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
    case IBV_WC_REM_ABORT_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR: return true;
    default: return false;
  }
}

/// The kinds of queue pairs that can have this fault.
std::uint8_t kinds_with(const FaultRule& rule) noexcept {
  constexpr std::uint8_t kAll = kOnRc | kOnUc | kOnUd | kOnXrc;
  if (rule.action == FaultAction::kLose) return kOnUc | kOnUd;
  if (rule.action == FaultAction::kNotReady) return kReliableKinds;
  return rule.action == FaultAction::kFail && needs_responder(rule.status) ? kReliableKinds : kAll;
}

/// A number that no other stream of the plan has.
std::uint64_t purpose_of(std::size_t rule, std::uint32_t queue_pair, unsigned use) noexcept {
  return (std::uint64_t{queue_pair} << 16 | static_cast<std::uint64_t>(rule) << 4 | use) + 1;
}

std::chrono::microseconds drawn_time(const FaultRule& rule, FaultStream& stream) noexcept {
  const std::int64_t span = (rule.longest - rule.shortest).count() + 1;
  return rule.shortest + std::chrono::microseconds(stream.below(static_cast<std::uint64_t>(span)));
}

}  // namespace

std::unique_ptr<QpFaults> QpFaults::create(std::shared_ptr<FaultRun> run, const Facts& facts) {
  auto faults = std::make_unique<QpFaults>(std::move(run), facts);
  const bool any = !faults->requests_.empty() || !faults->holds_[0].empty();
  return any ? std::move(faults) : nullptr;
}

QpFaults::QpFaults(std::shared_ptr<FaultRun> run, const Facts& facts)
    : run_(std::move(run)), transport_(facts.transport) {
  for (const std::size_t index : run_->rules_for(facts.device)) {
    const FaultRule& rule = run_->plan().rules[index];
    const FaultSelectors& wanted = rule.selectors;
    if (rule.action == FaultAction::kRefuse) continue;
    if (wanted.queue_pair != 0 && wanted.queue_pair != facts.ordinal) continue;
    if (wanted.transports != 0 && (wanted.transports & facts.transport) == 0) continue;
    if ((kinds_with(rule) & facts.transport) == 0) continue;
    const auto trigger = [&](unsigned use) {
      return FaultTrigger(rule.when, run_->seed(), purpose_of(index, facts.ordinal, use));
    };
    if (rule.is_for_requests()) {
      requests_.push_back({index, trigger(1)});
    } else {
      holds_[0].push_back({index, trigger(2)});
      holds_[1].push_back({index, trigger(3)});
    }
  }
}

/// True if the rule is about such requests.
bool QpFaults::counts(const FaultRule& rule, ibv_wr_opcode opcode,
                      const std::array<std::uint8_t, 16>& peer) const noexcept {
  const FaultSelectors& wanted = rule.selectors;
  if (wanted.opcodes != 0 && (wanted.opcodes & fault_opcode_bit(opcode)) == 0) return false;
  if (wanted.peer && *wanted.peer != peer) return false;
  // Only messages that take a receive can find none. Requests for local memory windows have no responder.
  if (rule.action == FaultAction::kNotReady) return takes_receive(opcode);
  const bool is_remote = rule.action == FaultAction::kLose || rule.at_peer ||
                         (rule.action == FaultAction::kFail && needs_responder(rule.status));
  return !is_remote || !is_for_here(opcode);
}

void QpFaults::add(const FaultRule& rule, FaultStream& stream, RequestFaults& faults) {
  switch (rule.action) {
    case FaultAction::kFail:
      if (!faults.failure) faults.failure = rule.status;
      return;
    case FaultAction::kNotReady: faults.not_ready_tries = std::max(faults.not_ready_tries, rule.number); return;
    case FaultAction::kDelay: faults.delay = std::max(faults.delay, drawn_time(rule, stream)); return;
    case FaultAction::kSlow: faults.slow = std::max(faults.slow, drawn_time(rule, stream)); return;
    case FaultAction::kLose: faults.is_lost = true; return;
    case FaultAction::kLink:
    case FaultAction::kFreeze: faults.effects.push_back({&rule, drawn_time(rule, stream)}); return;
    default: faults.effects.push_back({&rule, {}});
  }
}

RequestFaults QpFaults::next(ibv_wr_opcode opcode, const std::array<std::uint8_t, 16>& peer) {
  RequestFaults faults;
  for (WatchedRule& one : requests_) {
    const FaultRule& rule = run_->plan().rules[one.index];
    if (!counts(rule, opcode, peer) || !one.trigger.next()) continue;
    run_->count(one.index);
    add(rule, one.trigger.stream(), faults);
  }
  return faults;
}

std::uint32_t QpFaults::next_hold(bool is_receive) {
  std::uint64_t hold = 0;
  for (WatchedRule& one : holds_[is_receive ? 1 : 0]) {
    if (!one.trigger.next()) continue;
    run_->count(one.index);
    hold = std::max(hold, one.trigger.stream().below(std::uint64_t{run_->plan().rules[one.index].number} + 1));
  }
  return static_cast<std::uint32_t>(hold);
}

}  // namespace rdmacomm::softdev
