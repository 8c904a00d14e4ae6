// qp_initiators.h - the part of a queue pair for initiators of this host, which map its memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "base/unique_fd.h"
#include "softdev/memory/initiator_target.h"
#include "softdev/shared/control_protocol.h"
#include "softdev/shared/layout.h"

namespace rdmacomm::softdev {

class SoftCq;
class SoftQp;
class SoftSrq;

/// Describes a queue pair to its initiators, waits until no initiator is at work, and handles initiators that do not
/// finish.
/// Threads: any. The device's own threads may use it after destroy(). They access completion queues and the shared
/// receive queue only here, under mutex_.
class QpInitiators final : public InitiatorTarget {
 public:
  explicit QpInitiators(SoftQp& qp) noexcept;

  // InitiatorTarget
  [[nodiscard]] bool is_busy() const noexcept override { return shared_.busy.load(std::memory_order_seq_cst) != 0; }
  void set_left_behind(bool is) noexcept override { left_behind_.store(is, std::memory_order_relaxed); }
  void notify_receiver() noexcept override;
  void settle_after_destruction() noexcept override;
  void forget_shared_receives(const ibv_srq& queue) noexcept override;
  [[nodiscard]] bool wait_until_seen_idle(Clock::time_point deadline) noexcept override {
    return wait_until_seen_idle(deadline, Wait::kUnlessByAddress);
  }

  // For the queue pair.
  /// destroy() has begun: the completion queues must not be accessed any more.
  void end_service() noexcept;
  /// The same as is_busy(), but ignores an initiator that is no longer waited for. Such an initiator does not delay a
  /// flush.
  [[nodiscard]] bool may_be_at_work() const noexcept {
    return is_busy() && !left_behind_.load(std::memory_order_relaxed);
  }

  /// How to wait for the initiator. An initiator that is known to be stopped is not waited for again in either mode.
  enum class Wait : std::uint8_t {
    kBounded,         ///< until the deadline
    kUnlessByAddress  ///< longer, while it may be writing to memory by its address
  };
  /// Sleeps until no initiator is at work here, at most kLongestRequest. Returns false: an initiator does not finish.
  /// Then it is added to the context's Stragglers.
  bool wait() noexcept;
  /// The same until the deadline, for a caller that has already called await_visibility(), once for many queue pairs.
  [[nodiscard]] bool wait_seen(Clock::time_point deadline, Wait how = Wait::kBounded) noexcept;
  /// Like wait(). Then waits until no thread of this process is working on a request or a completion of this queue
  /// pair.
  [[nodiscard]] bool wait_until_idle(Wait how) noexcept;

  // For the serving thread.
  /// Fills `answer` with the data that an initiator needs to map this queue pair. Returns false: destroyed.
  [[nodiscard]] bool describe(Answer& answer);
  /// A duplicate of the descriptor that wakes its receiver. Returns 0, or an errno value.
  [[nodiscard]] int channel_descriptor(UniqueFd& wake_fd);
  /// An initiator has found fewer receives than the limit.
  void raise_srq_limit();
  /// The process of an initiator has died: calls SoftCq::make_up_for_event(), except for a queue in `done`.
  void make_up_for_event(std::vector<const SoftCq*>& done) noexcept;
  /// The process of `initiator_qpn` has died, so it is not at work here any more. Returns false: this queue pair is
  /// not connected to it, so the flag is not the flag of that initiator.
  bool forget(std::uint32_t initiator_qpn) noexcept;

 private:
  [[nodiscard]] bool wait_until_seen_idle(Clock::time_point deadline, Wait how) noexcept;
  [[nodiscard]] bool may_write_still(std::uint32_t flag, Clock::time_point now,
                                     std::optional<Clock::time_point>& end) noexcept;
  void withdraw_unpublished() noexcept;

  SoftQp& qp_;
  QpShared& shared_;
  std::atomic<bool> left_behind_{false};         // its initiator is one of the Stragglers
  std::atomic<Clock::time_point> writes_end_{};  // upper bound of the end of writes that were taken back
  std::mutex mutex_;                             // guards the members below
  SoftSrq* srq_;                                 // of the queue pair; nullptr once it may be destroyed
  bool destroyed_ = false;
};

}  // namespace rdmacomm::softdev
