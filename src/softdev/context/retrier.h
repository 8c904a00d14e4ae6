// retrier.h - the thread that tries waiting requests again.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

namespace rdmacomm::softdev {

class LaterSearch;
class SoftContext;
class SoftQp;

/// Looks for targets that are not found yet, on a thread that is there from the first of them on: one that is stopped is waited for, and
/// whoever waits for something else must not be held up by it.
/// Threads: any.
class TargetFinder {
 public:
  TargetFinder() = default;
  TargetFinder(const TargetFinder&) = delete;
  TargetFinder& operator=(const TargetFinder&) = delete;
  ~TargetFinder() { stop(); }

  /// Has the target of `qp` looked for, unless it is about to be.
  void look_for_target_of(const std::shared_ptr<SoftQp>& qp);
  /// Has `search` made, if somebody still wants it by then. false: there are no more threads; ask again later.
  [[nodiscard]] bool make(const std::shared_ptr<LaterSearch>& search);
  void stop();

 private:
  /// One of both.
  struct Wanted {
    std::shared_ptr<SoftQp> target_of;
    std::weak_ptr<LaterSearch> search;
  };

  [[nodiscard]] bool want_locked(Wanted wanted);
  void run();

  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Wanted> wanted_;  // the first is being looked for
  bool stopping_ = false;
};

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
