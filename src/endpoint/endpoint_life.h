// endpoint_life.h - the life of an endpoint: in which state it is, why it ends, and who still serves it.
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

/// The only place where an endpoint's state changes. States go forward only, and the first reason for the end stays:
///
///     setting up --establish()--> established --end()--> ended --stop()--> stopped --end_finish()--> gone
///          \___________________________\________________/
///                    end() and stop(), from each state before theirs
///
///     setting up   the queue pairs are being connected; no hook but lazy_config_hca() and post_connecting() knows of it
///     established  both sides have met: the application sends and receives
///     ended        the peer or the device has ended it, or abort() has; waits return why()
///     stopped      this side moves the queue pairs to ERR: what is outstanding comes out of them
///     gone         nothing is outstanding, and no thread serves it: no buffer is in use
///
/// Threads: all functions from any.
class EndPointLife {
 public:
  // Asked. Cost of all but why() and outcome(): one load ----------------------------------------------------------

  [[nodiscard]] bool setting_up() const noexcept { return state() == State::kSettingUp; }
  /// Established, and not ended.
  [[nodiscard]] bool alive() const noexcept { return state() == State::kEstablished; }
  /// Ended, established or not.
  [[nodiscard]] bool over() const noexcept { return state() > State::kEstablished; }
  /// Whether it was established, whatever has become of it since.
  [[nodiscard]] bool was_established() const noexcept { return (load() & kWasEstablished) != 0; }
  /// Whether on_established() has returned.
  [[nodiscard]] bool announced() const noexcept { return (load() & kAnnounced) != 0; }
  /// ok until it ends; then the first reason.
  [[nodiscard]] Status why() const;
  /// What on_disconnected() is told: ok if the peer has ended it in order, or stop() has; else why().
  [[nodiscard]] Status outcome() const;

  // Moved ---------------------------------------------------------------------------------------------------------

  /// Both sides have met. False: it has ended before that.
  [[nodiscard]] bool establish() noexcept;
  /// on_established() has returned.
  void announce() noexcept { marks_and_state_.fetch_or(kAnnounced, std::memory_order_acq_rel); }
  /// It ends by itself. False: it had ended already.
  ///
  /// in_order  the peer has closed the connection, and said so
  bool end(Error why, bool in_order);
  /// This side ends it. False: it had done so already; else the caller moves the queue pairs to ERR.
  bool stop(Error why);

  // Those who serve it --------------------------------------------------------------------------------------------

  /// From now until end_serving(), the thread polls one of its completion queues and will drain it.
  void begin_serving(std::thread::id server);
  void end_serving(std::thread::id server);
  [[nodiscard]] std::size_t servers() const;
  [[nodiscard]] bool served_by_this_thread() const;

  // Its last step, by one thread at a time ------------------------------------------------------------------------

  enum class Finish : std::uint8_t {
    kMine,         ///< this thread drains what no server does, and calls end_finish()
    kGone,         ///< there is nothing to do
    kOtherThread,  ///< the deadline has passed while another thread was about it
    kServed,       ///< the deadline has passed while a server was in a hook
  };
  [[nodiscard]] Finish begin_finish(Deadline deadline);
  /// gone  nothing is outstanding
  void end_finish(bool gone);
  /// From setting up to gone at once: its channels could not be made, and no peer knows of it.
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
  mutable std::mutex mutex_;                      // guards what follows
  std::condition_variable changed_;
  std::optional<Error> why_;
  bool in_order_ = false;
  std::vector<std::thread::id> servers_;
  bool finishing_ = false;
};

}  // namespace rdmacomm
