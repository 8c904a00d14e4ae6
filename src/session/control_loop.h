// control_loop.h - the control thread of a session: what it sleeps on, and how it is woken and ended.
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

/// Sleeps on descriptors, and has its Work done when one of them is ready, or time has come.
/// Threads: all functions from any, but open() and start() from the one that starts the session.
class ControlLoop {
 public:
  /// Names a descriptor that is watched. kWake is the loop's own.
  using Id = std::uint64_t;
  static constexpr Id kWake = 0;

  /// All of it on the control thread, without a lock of the loop's.
  class Work {
   public:
    virtual ~Work() = default;
    /// What is due now. Before each sleep. Returns when to call it again if nothing else happens.
    virtual Deadline take_turn() = 0;
    virtual void on_ready(Id id) = 0;
    /// take_turn() or on_ready() has thrown for lack of memory. What was left undone is found again in the next turn, after
    /// a pause in which memory may be given back.
    virtual void on_shortage(const Status& why) = 0;
    /// After stop(), as the last thing.
    virtual void tear_down() = 0;
  };

  /// Makes what stop() and wake() signal. Before open(); a second call has no effect. The caller sees to it that stop() is not
  /// called at the same time.
  /// Returns  a system error if there are too many open files
  [[nodiscard]] Status make_events();
  /// Readable once stop() was called: ends waits of the session.
  [[nodiscard]] int stop_fd() const noexcept { return stop_event_.fd(); }
  /// Returns  as make_events()
  [[nodiscard]] Status open();
  /// inside  the thread is in it
  /// Returns  as start_thread
  [[nodiscard]] Status start(Work& work, InsideThreads& inside);

  /// After open(): `id` is ready when the descriptor has one of `events` (epoll_ctl(2)).
  ///
  /// what     for the error: "the listening socket"
  [[nodiscard]] Status watch(int fd, std::uint32_t events, Id id, const std::string& what);
  /// Without effect if it is not watched.
  void unwatch(int fd) noexcept;
  /// Begins a turn soon.
  void wake() const noexcept { wake_event_.signal(); }
  /// The thread tears down and ends; waits on stop_fd() end, too.
  void stop() noexcept;
  /// Waits until the thread has ended, if it was started. Not on that thread.
  void join();

 private:
  void run(Work& work);

  std::atomic<bool> stopping_{false};
  WakeEvent stop_event_;
  WakeEvent wake_event_;
  UniqueFd epoll_;
  std::mutex join_mutex_;  // held while joining, so that one thread does
  std::thread thread_;
};

}  // namespace rdmacomm
