// control_loop.h - the control thread of a session: its descriptors, and how it is woken and ended.
// Private to the session layer.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "base/unique_fd.h"
#include "base/wake_event.h"
#include "rdmacomm/deadline.h"
#include "rdmacomm/result.h"
#include "session/session_threads.h"

namespace rdmacomm {

/// Sleeps on descriptors, and calls its Work when one of them is ready, or when a time is reached.
/// Threads: any thread, except open() and start(): the thread that starts the session.
class ControlLoop {
 public:
  /// Identifies a watched descriptor. The loop itself uses kWake.
  using Id = std::uint64_t;
  static constexpr Id kWake = 0;

  /// All functions are called on the control thread. The loop holds no lock meanwhile.
  class Work {
   public:
    virtual ~Work() = default;
    /// Does the work that is due now. Called before each sleep. Returns when to call it again if no event occurs.
    virtual Deadline take_turn() = 0;
    virtual void on_ready(Id id) = 0;
    /// take_turn() or on_ready() has thrown for lack of memory. The next turn does the remaining work, after a pause in
    /// which memory may be freed.
    virtual void on_shortage(const Status& why) = 0;
    /// Called once, after stop(), as the last function.
    virtual void tear_down() = 0;
  };

  /// Creates the events for stop() and wake(). Call it before open(); a second call has no effect. The caller ensures
  /// that stop() is not called at the same time.
  /// Returns  a system error if there are too many open files
  [[nodiscard]] Status make_events();
  /// Readable after stop(): ends waits of the session.
  [[nodiscard]] int stop_fd() const noexcept { return stop_event_.fd(); }
  /// Returns  as make_events()
  [[nodiscard]] Status open();
  /// inside  the thread registers itself there
  /// Returns  as start_thread
  [[nodiscard]] Status start(Work& work, InsideThreads& inside);

  /// After open(): calls on_ready(id) when the descriptor has one of `events` (epoll_ctl(2)).
  ///
  /// what     for error texts: "the listening socket"
  [[nodiscard]] Status watch(int fd, std::uint32_t events, Id id, const std::string& what);
  /// No effect if the descriptor is not watched.
  void unwatch(int fd) noexcept;
  /// Starts a turn soon.
  void wake() const noexcept { wake_event_.signal(); }
  /// Makes the thread call tear_down() and end. Waits on stop_fd() end, too.
  void stop() noexcept;
  /// Waits until the thread has ended, if it was started. Must not be called on that thread.
  void join();

 private:
  void run(Work& work);

  std::atomic<bool> stopping_{false};
  WakeEvent stop_event_;
  WakeEvent wake_event_;
  UniqueFd epoll_;
  std::mutex join_mutex_;  // held while joining, so that only one thread joins
  std::thread thread_;
};

}  // namespace rdmacomm
