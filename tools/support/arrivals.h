// arrivals.h - passes new endpoints of a server session to the thread that serves them.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>

#include "rdmacomm/endpoint.h"

namespace rdmacomm::programs {

/// Passes on every endpoint that on_established() names, once, even if its peer has disconnected meanwhile, so that a
/// server can free the memory of each endpoint. (If the session's threads serve the endpoints, ServerSession::accept()
/// skips endpoints that have ended.) Threads: any.
class Arrivals {
 public:
  /// Call it in on_established().
  void put(const EndPoint& endpoint) {
    const std::lock_guard lock(mutex_);
    endpoints_.push_back(endpoint);
    changed_.notify_one();
  }
  /// Waits for the next endpoint. Returns an empty one after stop().
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
