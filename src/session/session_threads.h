// session_threads.h - knowing one's own threads. Private to the session layer.
#pragma once

#include <mutex>
#include <set>
#include <thread>

namespace rdmacomm {

/// The threads that are inside a session, and may be in a hook of it: they must not wait for its end.
/// Threads: any.
class InsideThreads {
 public:
  /// The current thread is inside while this lives. Nests.
  class Guard {
   public:
    explicit Guard(InsideThreads& threads) : threads_(threads) {
      const std::lock_guard lock(threads_.mutex_);
      threads_.inside_.insert(std::this_thread::get_id());
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    ~Guard() {
      const std::lock_guard lock(threads_.mutex_);
      threads_.inside_.erase(threads_.inside_.find(std::this_thread::get_id()));
    }

   private:
    InsideThreads& threads_;
  };

  [[nodiscard]] bool contains_this_one() const {
    const std::lock_guard lock(mutex_);
    return inside_.contains(std::this_thread::get_id());
  }

 private:
  mutable std::mutex mutex_;
  std::multiset<std::thread::id> inside_;
};

}  // namespace rdmacomm
