// stragglers.h - initiators that did not let go in time, and what must not be used again before they have.
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

/// An initiator that is stopped in the middle of a request keeps its flag up until it is continued, or dies. As a NIC does not
/// wait for its peers, the target goes on without it after kLongestRequest. What the initiator may have found before, and may
/// still write to, is given back later: when its flag is down.
///
/// What was made after its queue pair was destroyed it cannot have found, so that is given back at once: a program that goes on
/// for long beside a stopped peer does not grow.
/// Threads: any.
class Stragglers {
 public:
  using Clock = std::chrono::steady_clock;

  Stragglers() = default;
  Stragglers(const Stragglers&) = delete;
  Stragglers& operator=(const Stragglers&) = delete;

  /// Later moments are higher.
  [[nodiscard]] std::uint64_t moment() noexcept;
  /// The initiator of `target` was waited for in vain.
  void add(const std::shared_ptr<InitiatorTarget>& target);
  /// The same if its flag is not down at the end of kLongestRequest, which nobody waits for: sweep() finds out.
  void suspect(const std::shared_ptr<InitiatorTarget>& target);
  /// Of a straggler: it is out of service. Its initiator finds nothing that is made from now on.
  void retire(const InitiatorTarget& target);
  /// The queue is destroyed: no straggler gives it anything back.
  void forget(const ibv_srq& queue);
  /// Calls `give_back`, which must not fail, when no straggler can be using what was made at that moment; now, if none can.
  void defer(std::uint64_t made_at, std::function<void()> give_back);
  /// Looks who has let go, and gives back what waited for them. Cost: one lock while there is none.
  void sweep();

  [[nodiscard]] bool any();
  /// Whether sweep() has something to look for.
  [[nodiscard]] bool watched_for();
  [[nodiscard]] std::vector<std::shared_ptr<InitiatorTarget>> targets();

 private:
  struct Straggler {
    std::shared_ptr<InitiatorTarget> target;
    std::uint64_t number;      // never the same twice
    std::uint64_t retired_at;  // a moment; kInService: it may find anything
  };
  struct Suspect {
    std::shared_ptr<InitiatorTarget> target;
    Clock::time_point until;
  };
  struct Deferred {
    std::vector<std::uint64_t> waits_for;  // stragglers' numbers
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
