#include "softdev/at_exit.h"

#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <set>
#include <utility>

namespace rdmacomm::softdev {
namespace {

/// All that are there. Never destroyed: the process may end while others still come and go.
struct Tasks {
  std::mutex mutex;
  std::set<AtExit*> all;
};

Tasks& tasks() {
  static auto& them = *new Tasks;
  return them;
}

}  // namespace

AtExit::AtExit(std::function<void()> task) : task_(std::move(task)), owner_(getpid()) {
  static const int registered = std::atexit(run_all);
  (void)registered;
  const std::scoped_lock lock(tasks().mutex);
  tasks().all.insert(this);
}

AtExit::~AtExit() {
  const std::scoped_lock lock(tasks().mutex);
  tasks().all.erase(this);
}

void AtExit::run_all() {
  const std::scoped_lock lock(tasks().mutex);
  for (const AtExit* const one : tasks().all) {
    if (one->owner_ == getpid()) one->task_();
  }
}

}  // namespace rdmacomm::softdev
