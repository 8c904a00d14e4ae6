#include "softdev/memory/stragglers.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "softdev/shared/hazard.h"

namespace rdmacomm::softdev {

std::uint64_t Stragglers::moment() noexcept {
  const std::scoped_lock lock(mutex_);
  return moment_++;
}

void Stragglers::add(const std::shared_ptr<InitiatorTarget>& target) {
  const std::scoped_lock lock(mutex_);
  if (std::ranges::find(stragglers_, target, &Straggler::target) != stragglers_.end()) return;
  target->set_left_behind(true);
  stragglers_.push_back({target, next_number_++, kInService});
}

void Stragglers::suspect(const std::shared_ptr<InitiatorTarget>& target) {
  const std::scoped_lock lock(mutex_);
  suspects_.push_back({target, Clock::now() + kLongestRequest});
}

void Stragglers::retire(const InitiatorTarget& target) {
  const std::scoped_lock lock(mutex_);
  for (Straggler& straggler : stragglers_) {
    if (straggler.target.get() == &target) straggler.retired_at = moment_++;
  }
}

void Stragglers::forget(const ibv_srq& queue) {
  for (const auto& target : targets()) target->forget_shared_receives(queue);
}

void Stragglers::defer(std::uint64_t made_at, std::function<void()> give_back) {
  sweep();
  std::vector<std::uint64_t> waits_for;
  {
    const std::scoped_lock lock(mutex_);
    for (const Straggler& straggler : stragglers_) {
      if (made_at < straggler.retired_at) waits_for.push_back(straggler.number);
    }
    if (!waits_for.empty()) return deferred_.push_back({std::move(waits_for), std::move(give_back)});
  }
  give_back();
}

void Stragglers::sweep() {
  if (!watched_for()) return;
  promote_suspects();
  drop_idle();
  give_back_free();
}

/// A suspect is due when its time is over or its flag is down. Then the threads that wait to flush its requests are
/// woken.
void Stragglers::promote_suspects() {
  std::vector<Suspect> due;
  {
    const std::scoped_lock lock(mutex_);
    const auto over = [now = suspects_.empty() ? Clock::time_point() : Clock::now()](const Suspect& suspect) {
      return now >= suspect.until || !suspect.target->is_busy();
    };
    // Not std::ranges: clang 14 does not compile the subrange of GCC 12.
    const auto rest = std::stable_partition(suspects_.begin(), suspects_.end(), over);
    std::move(suspects_.begin(), rest, std::back_inserter(due));
    suspects_.erase(suspects_.begin(), rest);
  }
  for (const Suspect& suspect : due) {
    if (suspect.target->is_busy()) add(suspect.target);
    suspect.target->notify_receiver();
  }
}

void Stragglers::drop_idle() {
  std::vector<std::shared_ptr<InitiatorTarget>>
      idle;  // destroyed after the unlock: the last owner destroys the queue pair
  const std::scoped_lock lock(mutex_);
  std::erase_if(stragglers_, [&idle](const Straggler& straggler) {
    if (straggler.target->is_busy()) return false;
    straggler.target->set_left_behind(false);
    straggler.target->settle_after_destruction();
    idle.push_back(straggler.target);
    return true;
  });
}

void Stragglers::give_back_free() {
  std::vector<Deferred> free;
  {
    const std::scoped_lock lock(mutex_);
    for (Deferred& deferred : deferred_) {
      std::erase_if(deferred.waits_for, [this](std::uint64_t number) {
        return std::ranges::find(stragglers_, number, &Straggler::number) == stragglers_.end();
      });
    }
    const auto waits = [](const Deferred& deferred) { return !deferred.waits_for.empty(); };
    const auto rest = std::stable_partition(deferred_.begin(), deferred_.end(), waits);
    std::move(rest, deferred_.end(), std::back_inserter(free));
    deferred_.erase(rest, deferred_.end());
  }
  for (const Deferred& deferred : free) deferred.give_back();
}

bool Stragglers::any() {
  const std::scoped_lock lock(mutex_);
  return !stragglers_.empty();
}

bool Stragglers::watched_for() {
  const std::scoped_lock lock(mutex_);
  return !stragglers_.empty() || !suspects_.empty() || !deferred_.empty();
}

std::vector<std::shared_ptr<InitiatorTarget>> Stragglers::targets() {
  const std::scoped_lock lock(mutex_);
  std::vector<std::shared_ptr<InitiatorTarget>> all;
  for (const Straggler& straggler : stragglers_) all.push_back(straggler.target);
  return all;
}

}  // namespace rdmacomm::softdev
