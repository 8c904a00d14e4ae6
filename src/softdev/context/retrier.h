// retrier.h - the thread that retries waiting requests.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "softdev/local/target_finder.h"

namespace rdmacomm::softdev {

class SoftContext;

/// Sleeps while no request waits. Otherwise it retries the waiting requests, first every few tens of microseconds,
/// later every millisecond. It replaces the RNR and ACK timers of a NIC.
class Retrier {
 public:
  explicit Retrier(SoftContext& context) : context_(context) {}
  Retrier(const Retrier&) = delete;
  Retrier& operator=(const Retrier&) = delete;
  ~Retrier() { stop(); }

  /// Returns  0, or an errno value.
  [[nodiscard]] int start();
  void stop();
  /// Call this when a request starts to wait, or may not have to wait any more. Cheap if the thread is awake.
  void wake();
  [[nodiscard]] TargetFinder& finder() noexcept { return finder_; }

 private:
  void run();
  bool retry_all();

  SoftContext& context_;
  TargetFinder finder_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool wanted_ = false;
  bool stopping_ = false;
};

}  // namespace rdmacomm::softdev
