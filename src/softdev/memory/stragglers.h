// stragglers.h - initiators that did not finish in time, and the memory that must not be reused before they do.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "softdev/memory/initiator_target.h"

namespace rdmacomm::softdev {

/// An initiator that is stopped in the middle of a request keeps its flag up until it continues or dies. A NIC does not
/// wait for its peers, so the target continues without the initiator after kLongestRequest. Objects that the initiator
/// may have found before, and may still write to, are freed later, when its flag is down.
///
/// The initiator cannot have found an object that was made after its queue pair was destroyed. Such an object is freed
/// at once, so the memory of a program that runs for long beside a stopped peer does not grow.
/// Threads: any.
class Stragglers {
 public:
  using Clock = std::chrono::steady_clock;

  Stragglers() = default;
  Stragglers(const Stragglers&) = delete;
  Stragglers& operator=(const Stragglers&) = delete;

  /// Returns a number that is higher than all earlier ones. It serves as a time.
  [[nodiscard]] std::uint64_t moment() noexcept;
  /// Adds a target whose initiator did not finish in time.
  void add(const std::shared_ptr<InitiatorTarget>& target);
  /// Adds `target` later, if its flag is still up after kLongestRequest. No thread waits for that; sweep() checks it.
  void suspect(const std::shared_ptr<InitiatorTarget>& target);
  /// The straggler `target` is out of service: its initiator cannot find objects made from now on.
  void retire(const InitiatorTarget& target);
  /// Call this when the queue is destroyed: no straggler returns entries to it any more.
  void forget(const ibv_srq& queue);
  /// Calls `give_back` when no straggler can be using an object made at `made_at`; at once if no straggler can use it
  /// now. `give_back` must not fail.
  void defer(std::uint64_t made_at, std::function<void()> give_back);
  /// Finds the initiators that have finished, and frees the objects that waited for them. Cost: one lock if no
  /// initiator is late.
  void sweep();

  [[nodiscard]] bool any();
  /// True if sweep() has work to check.
  [[nodiscard]] bool watched_for();
  [[nodiscard]] std::vector<std::shared_ptr<InitiatorTarget>> targets();

 private:
  struct Straggler {
    std::shared_ptr<InitiatorTarget> target;
    std::uint64_t number;      // unique
    std::uint64_t retired_at;  // a moment(); kInService: its initiator may find any object
  };
  struct Suspect {
    std::shared_ptr<InitiatorTarget> target;
    Clock::time_point until;
  };
  struct Deferred {
    std::vector<std::uint64_t> waits_for;  // numbers of stragglers
    std::function<void()> give_back;
  };
  static constexpr std::uint64_t kInService = UINT64_MAX;

  void promote_suspects();
  void drop_idle();
  void give_back_free();

  std::mutex mutex_;
  std::uint64_t moment_ = 1;
  std::uint64_t next_number_ = 1;
  std::vector<Straggler> stragglers_;
  std::vector<Suspect> suspects_;
  std::vector<Deferred> deferred_;
};

}  // namespace rdmacomm::softdev
