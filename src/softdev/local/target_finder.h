// target_finder.h - looks for targets on a separate thread.
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

/// Looks for targets on a separate thread, which the first search starts. A search may wait for a stopped target, and
/// must not delay threads that wait for other things.
/// Threads: any.
class TargetFinder {
 public:
  TargetFinder() = default;
  TargetFinder(const TargetFinder&) = delete;
  TargetFinder& operator=(const TargetFinder&) = delete;
  ~TargetFinder() { stop(); }

  /// Calls `find`, which looks for the target of `owner`, on the thread. Does nothing if such a call is already queued.
  template <typename Find>
  void look_for_target_of(const std::shared_ptr<const void>& owner, Find&& find) {
    const std::scoped_lock lock(mutex_);
    // If no thread can be started, the next retry calls this again.
    if (!is_wanted_locked(owner)) (void)want_locked({owner, std::forward<Find>(find), {}});
  }
  /// Runs `search` on the thread, unless its last user drops it first. Returns false: no more threads are available;
  /// try again later.
  [[nodiscard]] bool make(const std::shared_ptr<LaterSearch>& search);
  void stop();

 private:
  /// Has either `find` or `search`.
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
  std::deque<Wanted> wanted_;  // the thread is working on the first one
  bool stopping_ = false;
};

}  // namespace rdmacomm::softdev
