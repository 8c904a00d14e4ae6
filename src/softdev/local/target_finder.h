// target_finder.h - looking for targets on a thread of its own.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace rdmacomm::softdev {

class LaterSearch;

/// Looks for targets that are not found yet, on a thread that is there from the first of them on: one that is stopped is waited for, and
/// whoever waits for something else must not be held up by it.
/// Threads: any.
class TargetFinder {
 public:
  TargetFinder() = default;
  TargetFinder(const TargetFinder&) = delete;
  TargetFinder& operator=(const TargetFinder&) = delete;
  ~TargetFinder() { stop(); }

  /// Has `find` called, which looks for the target of `owner`, unless that is about to be done.
  template <typename Find>
  void look_for_target_of(const std::shared_ptr<const void>& owner, Find&& find) {
    const std::scoped_lock lock(mutex_);
    // Where there is no thread for it, the next retry asks again.
    if (!is_wanted_locked(owner)) (void)want_locked({owner, std::forward<Find>(find), {}});
  }
  /// Has `search` made, if somebody still wants it by then. false: there are no more threads; ask again later.
  [[nodiscard]] bool make(const std::shared_ptr<LaterSearch>& search);
  void stop();

 private:
  /// One of both.
  struct Wanted {
    std::shared_ptr<const void> owner;
    std::function<void()> find;
    std::weak_ptr<LaterSearch> search;
  };

  [[nodiscard]] bool is_wanted_locked(const std::shared_ptr<const void>& owner) const;
  [[nodiscard]] bool want_locked(Wanted wanted);
  void run();

  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Wanted> wanted_;  // the first is being looked for
  bool stopping_ = false;
};

}  // namespace rdmacomm::softdev
