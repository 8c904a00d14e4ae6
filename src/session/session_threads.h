// session_threads.h - the set of threads that are inside a session. Private to the session layer.
#pragma once

#include <mutex>
#include <thread>
#include <utility>

namespace rdmacomm {

/// The threads that are inside a session, and may be in one of its hooks: they must not wait for its end.
/// Threads: any.
class InsideThreads {
 public:
  /// The current thread is inside while an object exists. Nests.
  class Guard {
   public:
    explicit Guard(InsideThreads& threads) : threads_(threads) {
      const std::lock_guard lock(threads_.mutex_);
      next_ = std::exchange(threads_.first_, this);
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    ~Guard() {
      const std::lock_guard lock(threads_.mutex_);
      Guard** link = &threads_.first_;
      while (*link != this) link = &(*link)->next_;
      *link = next_;
    }

   private:
    friend class InsideThreads;
    InsideThreads& threads_;
    const std::thread::id thread_ = std::this_thread::get_id();
    Guard* next_ = nullptr;
  };

  [[nodiscard]] bool contains_this_one() const {
    const std::lock_guard lock(mutex_);
    for (const Guard* each = first_; each != nullptr; each = each->next_) {
      if (each->thread_ == std::this_thread::get_id()) return true;
    }
    return false;
  }

 private:
  mutable std::mutex mutex_;
  Guard* first_ = nullptr;  // a list through the guards themselves, so that no memory is needed
};

}  // namespace rdmacomm
