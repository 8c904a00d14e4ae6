// The end of the process: leaks, the numbers of reports, and the exit status. And fork(), which continues in two.
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "softdev/check/channels.h"
#include "softdev/check/locked.h"
#include "softdev/check/next.h"
#include "softdev/check/object_calls.h"
#include "softdev/check/pages.h"
#include "softdev/check/report.h"
#include "softdev/check/requests.h"

namespace check = rdmacomm::softdev::check;

namespace {

/// The process that the records belong to. A child of vfork() has the memory of its parent.
pid_t owner = 0;

/// Reports each object that the program has not ended, once for each place that makes them.
void report_leaks() {
  std::map<std::pair<check::ObjectKind, check::StackId>, std::pair<unsigned, const check::Object*>> leaks;
  for (const auto& [address, object] : check::objects().all()) {
    if (object->is_of_parent) continue;
    auto& [count, one] = leaks[{object->kind, object->created}];
    ++count;
    one = object.get();
  }
  for (const auto& [key, leak] : leaks) {
    const auto& [count, one] = leak;
    const bool is_context = key.first == check::ObjectKind::kContext;
    check::Report leaked{is_context ? check::Rule::kContextLeak : check::Rule::kLeak,
                         count == 1 ? one->describe() + " still exists at the end of the process"
                                    : std::to_string(count) + " objects still exist at the end of the process: " +
                                          one->describe() + ", and others of the same place",
                         {}};
    check::report(leaked.line("created", "at", one->created));
  }
}

void report_events() {
  for (const auto& [address, object] : check::objects().all()) {
    if (object->is_of_parent) continue;
    if (const auto* const cq = dynamic_cast<const check::Cq*>(object.get()); cq != nullptr)
      static_cast<void>(check::check_events(*cq, cq->events));
    static_cast<void>(check::take_async_events(*object));
  }
}

/// A thread that was interrupted by a signal may hold the lock, and the signal handler may call exit().
bool lock_for_a_while() {
  for (int i = 0; i < 200; ++i) {
    if (check::checker_mutex().try_lock()) return true;
    usleep(1000);
  }
  return false;
}

/// Prints the last reports, once. Returns the exit status.
int end_process(int status, bool is_in_order) {
  if (owner != getpid()) return status;
  owner = 0;
  if (!lock_for_a_while()) return status;
  const check::Inside inside;
  if (is_in_order) {
    report_events();
    report_leaks();
  }
  const int result = check::finish_reports(status);
  check::checker_mutex().unlock();
  return result;
}

/// Called by exit(), after all functions and destructors of the program and its libraries.
void at_exit(int status, void* /*argument*/) {
  const int result = end_process(status, true);
  if (result == status) return;
  std::fflush(nullptr);
  _exit(result);
}

/// Between before_fork() and the end of the fork.
std::optional<check::Inside> forking;

void before_fork() {
  const check::Inside inside;
  check::checker_mutex().lock();
  forking.emplace();
  check::open_all_pages();
}
void after_fork() {
  const check::Inside inside;
  forking.reset();
  check::checker_mutex().unlock();
}
/// The child reports what it does itself. The objects of its parent are not for its use.
void in_child() {
  owner = getpid();
  for (const auto& [address, object] : check::objects().all()) {
    object->is_of_parent = true;
    check::forget_requests_of(address);
  }
  check::forget_reports();
  after_fork();
}

/// exit() calls the functions in the reverse order of their registration. This one is registered before the loader's own,
/// which calls the destructors of all libraries.
[[gnu::constructor]] void begin() {
  owner = getpid();
  on_exit(at_exit, nullptr);
  pthread_atfork(before_fork, after_fork, in_child);
}

}  // namespace

RDMACOMM_CHECKS void _exit(int status) {
  RDMACOMM_BEHIND(_exit);
  behind(end_process(status, false));
  __builtin_unreachable();
}

RDMACOMM_CHECKS void _Exit(int status) noexcept {
  _exit(status);
}
