#include "softdev/common/at_exit.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "base/spin_lock.h"

namespace rdmacomm::softdev {
namespace {

/// All tasks of one process. Never destroyed: the process may end while other threads still create and destroy tasks.
struct Tasks {
  pid_t owner;
  Tasks* of_parent;  ///< unused since fork()
  SpinLock lock;
  std::set<AtExit*> all;
};

/// The tasks of a process. A child made by fork() starts with a new empty set and a new lock. It cannot use its
/// parent's lock, because another thread may have held it during fork().
std::atomic<Tasks*> current{nullptr};

Tasks& tasks() {
  Tasks* known = current.load(std::memory_order_acquire);
  if (known != nullptr && known->owner == getpid()) return *known;
  auto* const fresh = new Tasks{getpid(), known, {}, {}};
  if (current.compare_exchange_strong(known, fresh, std::memory_order_acq_rel)) return *fresh;
  delete fresh;
  return *known;
}

/// A signal handler that interrupted the lock's owner may call exit(). That thread then never releases the lock.
bool lock_for_a_while(SpinLock& lock) {
  constexpr std::chrono::milliseconds kLongest{100};
  const auto give_up_at = std::chrono::steady_clock::now() + kLongest;
  while (!lock.try_lock()) {
    if (std::chrono::steady_clock::now() >= give_up_at) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace

AtExit::AtExit(std::function<void()> task) : task_(std::move(task)) {
  static const int registered = std::atexit(run_all);
  (void)registered;
  Tasks& own = tasks();
  const std::scoped_lock guard(own.lock);
  own.all.insert(this);
}

AtExit::~AtExit() {
  Tasks& own = tasks();
  const std::scoped_lock guard(own.lock);
  own.all.erase(this);
}

void AtExit::run_all() {
  Tasks* const own = current.load(std::memory_order_acquire);
  // A child of vfork() has its parent's memory, and must not change it.
  if (own == nullptr || own->owner != getpid() || !lock_for_a_while(own->lock)) return;
  const std::scoped_lock guard(std::adopt_lock, own->lock);
  for (const AtExit* const one : own->all) one->task_();
}

}  // namespace rdmacomm::softdev
