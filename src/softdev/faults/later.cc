#include "softdev/faults/later.h"

#include <utility>

#include "softdev/common/service_thread.h"

namespace rdmacomm::softdev {

int Later::start() {
  return start_service_thread(thread_, "soft0-faults", [this] { serve(); });
}

void Later::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
  for (auto& [time, one] : waiting_) {
    if (one.at_stop == AtStop::kRun) one.function();
  }
  waiting_.clear();
}

void Later::run(Clock::time_point time, AtStop at_stop, std::function<void()> function) {
  {
    const std::scoped_lock lock(mutex_);
    waiting_.emplace(time, Waiting{at_stop, std::move(function)});
  }
  changed_.notify_one();
}

void Later::serve() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (waiting_.empty()) {
      changed_.wait(lock);
    } else if (waiting_.begin()->first > Clock::now()) {
      changed_.wait_until(lock, Clock::time_point(waiting_.begin()->first));
    } else {
      const auto due = waiting_.extract(waiting_.begin());
      lock.unlock();
      due.mapped().function();
      lock.lock();
    }
  }
}

}  // namespace rdmacomm::softdev
