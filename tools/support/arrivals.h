// arrivals.h - the endpoints of a server session on their way to the thread that serves them.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>

#include "rdmacomm/endpoint.h"

namespace rdmacomm::programs {

/// Every endpoint that on_established() names is handed out once, also if its peer has left meanwhile, so that a server
/// frees what it has allocated for each of them. (ServerSession::accept() leaves out those that have ended where
/// the session's threads serve them.) Threads: any.
class Arrivals {
 public:
  /// In on_established().
  void put(const EndPoint& endpoint) {
    const std::lock_guard lock(mutex_);
    endpoints_.push_back(endpoint);
    changed_.notify_one();
  }
  /// Waits for the next one. An empty one: stop() was called.
  [[nodiscard]] EndPoint next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stopped_ || !endpoints_.empty(); });
    if (stopped_) return {};
    EndPoint endpoint = std::move(endpoints_.front());
    endpoints_.pop_front();
    return endpoint;
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<EndPoint> endpoints_;
  bool stopped_ = false;
};

}  // namespace rdmacomm::programs
