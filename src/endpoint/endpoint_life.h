// endpoint_life.h - the life of an endpoint: its state, the reason for its end, and the threads that serve it.
// Layer: endpoint. Private to the library.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "rdmacomm/deadline.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

/// The state of an endpoint; it changes only here. States go forward only, and the first reason for the end is kept:
///
///     setting up --establish()--> established --end()--> ended --stop()--> stopped --end_finish()--> gone
///          \___________________________\________________/
///                    end() and stop(), from each state before theirs
///
///     setting up   the queue pairs are being connected; only lazy_config_hca() and post_connecting() are called
///     established  both ends have passed the barrier: the application sends and receives
///     ended        the peer, the device or abort() has ended it; waits return why()
///     stopped      the queue pairs are moved to ERR locally, so that all outstanding requests complete
///     gone         nothing is outstanding, and no thread serves it: no buffer is in use
///
/// Threads: any thread.
class EndPointLife {
 public:
  // Queries. Cost, except of why() and outcome(): one load ----------------------------------------------------------

  [[nodiscard]] bool setting_up() const noexcept { return state() == State::kSettingUp; }
  /// Established, and not ended.
  [[nodiscard]] bool alive() const noexcept { return state() == State::kEstablished; }
  /// Ended, established or not.
  [[nodiscard]] bool over() const noexcept { return state() > State::kEstablished; }
  /// Whether it was established. Stays true after its end.
  [[nodiscard]] bool was_established() const noexcept { return (load() & kWasEstablished) != 0; }
  /// Whether on_established() has returned.
  [[nodiscard]] bool announced() const noexcept { return (load() & kAnnounced) != 0; }
  /// ok until it ends; then the first reason.
  [[nodiscard]] Status why() const;
  /// The status for on_disconnected(): ok if the peer has ended it in order, or stop() has; else why().
  [[nodiscard]] Status outcome() const;

  // Changes ---------------------------------------------------------------------------------------------------------

  /// Both ends have passed the barrier. False: it has ended before that.
  [[nodiscard]] bool establish() noexcept;
  /// on_established() has returned.
  void announce() noexcept { marks_and_state_.fetch_or(kAnnounced, std::memory_order_acq_rel); }
  /// It has ended, but stop() was not called. False: it had ended already.
  ///
  /// in_order  the peer has closed the connection in order
  bool end(Error why, bool in_order);
  /// It is ended locally. False: that was done already; else the caller must move the queue pairs to ERR.
  bool stop(Error why);

  // Threads that serve it -------------------------------------------------------------------------------------------

  /// From now until end_serving(), the thread polls one of its completion queues, and drains it at the end.
  void begin_serving(std::thread::id server);
  void end_serving(std::thread::id server);
  [[nodiscard]] std::size_t servers() const;
  [[nodiscard]] bool served_by_this_thread() const;

  // The last step, by one thread at a time --------------------------------------------------------------------------

  enum class Finish : std::uint8_t {
    kMine,         ///< this thread drains the queues that no server drains, and calls end_finish()
    kGone,         ///< nothing to do
    kOtherThread,  ///< the deadline has passed while another thread did the last step
    kServed,       ///< the deadline has passed while a server was in a hook
  };
  [[nodiscard]] Finish begin_finish(Deadline deadline);
  /// gone  whether nothing is outstanding any more
  void end_finish(bool gone);
  /// From setting up to gone at once: its channels could not be created, and no peer knows of it.
  void discard() noexcept;

 private:
  enum class State : std::uint8_t { kSettingUp, kEstablished, kEnded, kStopped, kGone };
  static constexpr std::uint8_t kStateBits = 0x0f;
  static constexpr std::uint8_t kWasEstablished = 0x10;
  static constexpr std::uint8_t kAnnounced = 0x20;

  [[nodiscard]] std::uint8_t load() const noexcept { return marks_and_state_.load(std::memory_order_acquire); }
  [[nodiscard]] State state() const noexcept { return static_cast<State>(load() & kStateBits); }
  bool move_locked(State next) noexcept;

  std::atomic<std::uint8_t> marks_and_state_{0};  // the state changes with mutex_ held, a mark at any time
  mutable std::mutex mutex_;                      // guards the members below
  std::condition_variable changed_;
  std::optional<Error> why_;
  bool in_order_ = false;
  std::vector<std::thread::id> servers_;
  bool finishing_ = false;
};

}  // namespace rdmacomm
