// event_queue.h - asynchronous events of one context.
#pragma once

#include <infiniband/verbs.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>

#include "rdmacomm/base/unique_fd.h"

namespace rdmacomm::softdev {

class SoftQp;

/// What get_async_event hands out. Its descriptor (ibv_context::async_fd) is readable while events wait.
/// Threads: any.
class EventQueue {
 public:
  /// 0, or an errno value.
  [[nodiscard]] int open();
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

  void push(ibv_event_type type, SoftQp& qp);
  /// As ibv_get_async_event: blocks unless the descriptor is non-blocking; -1 and errno.
  int get(ibv_async_event& event);
  void acknowledge(const ibv_async_event& event);
  /// Drops the events of `qp` that nobody took and waits until all taken ones are acknowledged.
  void retire(SoftQp& qp);

 private:
  UniqueFd fd_;
  std::mutex mutex_;
  std::condition_variable acknowledged_;
  std::deque<ibv_async_event> waiting_;
};

}  // namespace rdmacomm::softdev
