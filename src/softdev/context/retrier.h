// retrier.h - the thread that tries waiting requests again.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "softdev/local/target_finder.h"

namespace rdmacomm::softdev {

class SoftContext;

/// Sleeps while no request waits. While some do, it tries them again every few tens of microseconds at first, then
/// every millisecond: what a NIC does by its RNR and ACK timers.
class Retrier {
 public:
  explicit Retrier(SoftContext& context) : context_(context) {}
  Retrier(const Retrier&) = delete;
  Retrier& operator=(const Retrier&) = delete;
  ~Retrier() { stop(); }

  /// 0, or an errno value.
  [[nodiscard]] int start();
  void stop();
  /// Something waits now, or can stop waiting. Cheap where the thread is awake already.
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
