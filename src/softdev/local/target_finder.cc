#include "softdev/local/target_finder.h"

#include <algorithm>
#include <utility>

#include "softdev/common/service_thread.h"
#include "softdev/local/wire.h"

namespace rdmacomm::softdev {

bool TargetFinder::is_wanted_locked(const std::shared_ptr<const void>& owner) const {
  return std::ranges::find(wanted_, owner, &Wanted::owner) != wanted_.end();
}

bool TargetFinder::make(const std::shared_ptr<LaterSearch>& search) {
  const std::scoped_lock lock(mutex_);
  return want_locked({nullptr, nullptr, search});
}

bool TargetFinder::want_locked(Wanted wanted) {
  if (stopping_) return false;
  if (!thread_.joinable() && start_service_thread(thread_, "soft0-find", [this] { run(); }) != 0) return false;
  wanted_.push_back(std::move(wanted));
  changed_.notify_one();
  return true;
}

void TargetFinder::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
  wanted_.clear();
}

void TargetFinder::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !wanted_.empty(); });
    if (stopping_) return;
    Wanted& first = wanted_.front();  // stays in the queue, and keeps its owner alive, during the search
    const std::function<void()> find = std::move(first.find);
    const std::weak_ptr<LaterSearch> wanted_search = first.search;
    lock.unlock();
    if (find != nullptr) {
      find();
    } else if (const auto search = wanted_search.lock()) {
      search->run();
    }
    lock.lock();
    wanted_.pop_front();
  }
}

}  // namespace rdmacomm::softdev
