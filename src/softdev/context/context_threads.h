// context_threads.h - the threads of a context, which run from its first queue pair on.
#pragma once

#include <mutex>
#include <utility>

#include "base/unique_fd.h"
#include "softdev/context/retrier.h"
#include "softdev/context/server.h"
#include "softdev/queues/premises.h"

namespace rdmacomm::softdev {

/// Starts the serving thread and the retrying thread together.
/// Threads: any.
class ContextThreads final : public DeviceThreads {
 public:
  ContextThreads(Server& server, Retrier& retrier) noexcept : server_(server), retrier_(retrier) {}

  [[nodiscard]] int start() override {
    const std::scoped_lock lock(mutex_);
    if (are_running_) return 0;
    int error = server_.start();
    if (error == 0) error = retrier_.start();
    if (error != 0) server_.stop();
    are_running_ = error == 0;
    return error;
  }
  void wake_retrier() override { retrier_.wake(); }
  void serve(UniqueFd listener) override { server_.add_listener(std::move(listener)); }

 private:
  Server& server_;
  Retrier& retrier_;
  std::mutex mutex_;
  bool are_running_ = false;
};

}  // namespace rdmacomm::softdev
