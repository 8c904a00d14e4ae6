// qp_initiators.h - the part of a queue pair that has to do with initiators of this host, which map its memory.
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

/// What initiators are told of a queue pair, whether one is at work there, and what is left when it does not let go.
/// Threads: any. The device's own threads may come after destroy(): they touch the completion queues and the shared receive queue
/// here alone, under mutex_.
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
  /// destroy() has begun: the completion queues are not to be touched any more.
  void end_service() noexcept;
  /// The same as is_busy(), but an initiator that is not waited for any longer does not count: it keeps nobody from flushing.
  [[nodiscard]] bool may_be_at_work() const noexcept {
    return is_busy() && !left_behind_.load(std::memory_order_relaxed);
  }

  /// How the initiator is waited for. Whichever: one that is known to be stopped is not waited for again.
  enum class Wait : std::uint8_t {
    kBounded,         ///< until the deadline
    kUnlessByAddress  ///< longer, while it may be writing to memory by its address
  };
  /// Waits, asleep, until no initiator is at work here; kLongestRequest at the most. false: it does not let go, and is one of the
  /// context's Stragglers from now on.
  bool wait() noexcept;
  /// The same until the deadline, for a caller that has called await_visibility() already, once for many queue pairs.
  [[nodiscard]] bool wait_seen(Clock::time_point deadline, Wait how = Wait::kBounded) noexcept;
  /// The same as wait(), and then until no thread of this process is at work on a request or a completion of this queue pair.
  [[nodiscard]] bool wait_until_idle(Wait how) noexcept;

  // For the serving thread.
  /// What an initiator must know to map this queue pair. false: destroyed.
  [[nodiscard]] bool describe(Answer& answer);
  /// What wakes its receiver, duplicated. 0, or an errno value.
  [[nodiscard]] int channel_descriptor(UniqueFd& wake_fd);
  /// An initiator has found few receives left.
  void raise_srq_limit();
  /// The process of an initiator has died: see SoftCq::make_up_for_event(). Not again for a queue that is among `done`.
  void make_up_for_event(std::vector<const SoftCq*>& done) noexcept;
  /// The process of `initiator_qpn` has died: it is not at work here any more. false: that is not the queue pair that this one is
  /// connected to, and the flag is not its.
  bool forget(std::uint32_t initiator_qpn) noexcept;

 private:
  [[nodiscard]] bool wait_until_seen_idle(Clock::time_point deadline, Wait how) noexcept;
  [[nodiscard]] bool may_write_still(std::uint32_t flag, Clock::time_point now,
                                     std::optional<Clock::time_point>& end) noexcept;
  void withdraw_unpublished() noexcept;

  SoftQp& qp_;
  QpShared& shared_;
  std::atomic<bool> left_behind_{false};         // its initiator is one of the Stragglers
  std::atomic<Clock::time_point> writes_end_{};  // of its initiator that were taken back, at the latest
  std::mutex mutex_;                             // guards what follows
  SoftSrq* srq_;                                 // the queue pair's, until it may be gone
  bool destroyed_ = false;
};

}  // namespace rdmacomm::softdev
