#include "support/delivery.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>

#include "base/wait.h"

namespace rdmacomm::programs {
namespace {

/// Passes the completions of one endpoint from the thread that calls hooks to the waiting thread. Threads: any.
class Inbox {
 public:
  void put(const Completion& completion) {
    const std::lock_guard lock(mutex_);
    completions_.push_back(completion);
    changed_.notify_all();
  }
  void end() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  std::span<Completion> take(std::span<Completion> out) {
    const std::lock_guard lock(mutex_);
    return take_locked(out);
  }
  /// Returns  empty: the endpoint has ended (`in_time` is true), or the deadline has passed (`in_time` is false)
  std::span<Completion> wait(std::span<Completion> out, Deadline deadline, bool& in_time) {
    std::unique_lock lock(mutex_);
    in_time = rdmacomm::wait(changed_, lock, deadline, [&] { return !completions_.empty() || ended_; });
    return take_locked(out);
  }

 private:
  std::span<Completion> take_locked(std::span<Completion> out) {
    const std::size_t count = std::min(out.size(), completions_.size());
    const auto end = completions_.begin() + static_cast<std::ptrdiff_t>(count);
    std::copy(completions_.begin(), end, out.begin());
    completions_.erase(completions_.begin(), end);
    return out.first(count);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Completion> completions_;
  bool ended_ = false;
};

bool served(const EndPoint& endpoint) {
  return endpoint.config().thread_mode != ThreadMode::kApplication;
}

}  // namespace

Status DeliveringHooks::post_connecting(const EndPoint& endpoint) {
  endpoint.set_context(std::make_shared<Inbox>());
  return {};
}

void DeliveringHooks::on_completion(const EndPoint& endpoint, const Completion& completion) {
  endpoint.context<Inbox>()->put(completion);
}

void DeliveringHooks::on_disconnected(const EndPoint& endpoint, const Status& /*why*/) {
  endpoint.context<Inbox>()->end();
}

Polled poll_delivered(const EndPoint& endpoint, std::span<Completion> out) {
  if (!served(endpoint)) return endpoint.poll(out);
  const std::span<Completion> taken = endpoint.context<Inbox>()->take(out);
  return {taken.data(), taken.size()};
}

Result<std::span<Completion>> wait_delivered(const EndPoint& endpoint, std::span<Completion> out, Deadline deadline) {
  if (!served(endpoint)) return endpoint.wait(out, deadline);
  bool in_time = false;
  const std::span<Completion> taken = endpoint.context<Inbox>()->wait(out, deadline, in_time);
  if (!taken.empty()) return taken;
  if (!in_time) return make_error(Errc::kTimeout, "no completion in time on the endpoint to " + endpoint.peer());
  if (const Status end = endpoint.status(); !end) return end.error();
  return make_error(Errc::kPeerLost, "the endpoint to " + endpoint.peer() + " has ended");
}

}  // namespace rdmacomm::programs
