#include "softdev/context/retrier.h"

#include <algorithm>
#include <chrono>

#include "softdev/common/service_thread.h"
#include "softdev/context/soft_context.h"
#include "softdev/queues/soft_qp.h"

namespace rdmacomm::softdev {
namespace {

constexpr std::chrono::microseconds kFirstPause{20};
constexpr std::chrono::microseconds kLongestPause{1000};
constexpr std::chrono::microseconds kStragglersPause{20'000};

}  // namespace

int Retrier::start() {
  return start_service_thread(thread_, "soft0-retry", [this] { run(); });
}

void Retrier::stop() {
  if (!thread_.joinable()) return;
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
  finder_.stop();
}

void Retrier::wake() {
  const std::scoped_lock lock(mutex_);
  if (wanted_) return;
  wanted_ = true;
  changed_.notify_one();
}

bool Retrier::retry_all() {
  bool waiting = false;
  for (const auto& qp : context_.queue_pairs().all()) {
    qp->fail_if_requested();
    if (!qp->needs_retries()) continue;
    if (!qp->retry_pending()) finder_.look_for_target_of(qp, [qp] { qp->find_target(); });
    waiting = waiting || qp->needs_retries();
  }
  return waiting;
}

void Retrier::run() {
  std::chrono::microseconds pause = kFirstPause;
  const bool late = context_.lateness().count() != 0;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (!wanted_) {
      changed_.wait(lock, [this] { return wanted_ || stopping_; });
      pause = kFirstPause;
      continue;
    }
    if (late) changed_.wait_for(lock, context_.lateness(), [this] { return stopping_; });
    wanted_ = false;
    lock.unlock();
    const bool waiting = retry_all();
    context_.stragglers().sweep();
    const bool watching = context_.stragglers().watched_for();
    lock.lock();
    if (!waiting && !watching) continue;
    changed_.wait_for(lock, waiting ? pause : kStragglersPause, [this] { return wanted_ || stopping_; });
    wanted_ = true;
    pause = std::min(pause * 2, kLongestPause);
  }
}

}  // namespace rdmacomm::softdev
