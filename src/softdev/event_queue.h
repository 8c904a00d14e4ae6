// event_queue.h - asynchronous events of one context.
#pragma once

#include <infiniband/verbs.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>

#include "rdmacomm/base/unique_fd.h"

namespace rdmacomm::softdev {

/// What an object that events are about has for them. Guarded by the context's event queue.
struct EventSource {
  std::uint32_t taken = 0;
  std::uint32_t acknowledged = 0;
  bool retired = false;
};

/// What get_async_event hands out. Its descriptor (ibv_context::async_fd) is readable while events wait, or where there may
/// be some: see also_readable_with().
/// Threads: any.
class EventQueue {
 public:
  /// 0, or an errno value.
  [[nodiscard]] int open();
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

  /// Makes fd() readable while `fd` is, too; until that is closed.
  void also_readable_with(int fd);

  /// `event` is about the object that `source` belongs to.
  void push(const ibv_async_event& event, EventSource& source);
  /// The next event; false: none waits.
  [[nodiscard]] bool take(ibv_async_event& event);
  /// Blocks until fd() is readable, unless it is non-blocking: 0, or -1 and errno as ibv_get_async_event has it.
  [[nodiscard]] int wait() const;
  void acknowledge(EventSource& source);
  /// Drops the events of `source` that nobody took and waits until all taken ones are acknowledged.
  void retire(EventSource& source);

 private:
  struct Waiting {
    ibv_async_event event;
    EventSource* source;
  };

  UniqueFd waiting_count_;  // an eventfd
  UniqueFd fd_;             // epoll: of that, and of others
  std::mutex mutex_;
  std::condition_variable acknowledged_;
  std::deque<Waiting> waiting_;
};

}  // namespace rdmacomm::softdev
