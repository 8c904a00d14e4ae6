// later.h - runs functions at later times, on a thread of its own.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace rdmacomm::softdev {

/// Threads: any.
class Later {
 public:
  using Clock = std::chrono::steady_clock;
  /// Whether a function also runs if stop() comes before its time.
  enum class AtStop { kDrop, kRun };

  Later() = default;
  Later(const Later&) = delete;
  Later& operator=(const Later&) = delete;
  ~Later() { stop(); }

  /// Returns  0, or an errno value: the system allows no more threads. Then no function ever runs, except at stop().
  [[nodiscard]] int start();
  /// Ends the thread. When it returns, no function is running.
  void stop();
  /// Runs `function` on the thread, at `time`.
  void run(Clock::time_point time, AtStop at_stop, std::function<void()> function);
  /// The same, after `delay`.
  void run(std::chrono::microseconds delay, AtStop at_stop, std::function<void()> function) {
    run(Clock::now() + delay, at_stop, std::move(function));
  }

 private:
  struct Waiting {
    AtStop at_stop;
    std::function<void()> function;
  };

  void serve();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<Clock::time_point, Waiting> waiting_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace rdmacomm::softdev
