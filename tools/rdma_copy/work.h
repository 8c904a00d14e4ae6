// work.h - whether the local process of a copy is at work, or waits for the peer.
#pragma once

#include <atomic>
#include <cstdint>

namespace rdmacomm::copying {

/// Counts the threads of one copy that are at work: always, except while they wait for the peer (Rest). At first that
/// is one, the thread that copies. A resource. Threads: any.
class Work {
 public:
  Work() = default;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  ~Work() = default;

  /// One more thread is at work, until end().
  void begin() noexcept {
    at_work_.fetch_add(1, std::memory_order_relaxed);
    changes_.fetch_add(1, std::memory_order_relaxed);
  }
  void end() noexcept { at_work_.fetch_sub(1, std::memory_order_relaxed); }
  [[nodiscard]] bool at_work() const noexcept { return at_work_.load(std::memory_order_relaxed) > 0; }
  /// How often a thread has begun. If the number has not changed, no thread was at work meanwhile that is not at work
  /// now.
  [[nodiscard]] std::uint64_t changes() const noexcept { return changes_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int> at_work_{1};
  std::atomic<std::uint64_t> changes_{0};
};

/// Exists while its thread waits for the peer. At most one per thread. A resource.
class Rest {
 public:
  /// work  may be null: not counted
  explicit Rest(Work* work) noexcept : work_(work) {
    if (work_ != nullptr) work_->end();
  }
  Rest(const Rest&) = delete;
  Rest& operator=(const Rest&) = delete;
  ~Rest() {
    if (work_ != nullptr) work_->begin();
  }

 private:
  Work* const work_;
};

}  // namespace rdmacomm::copying
