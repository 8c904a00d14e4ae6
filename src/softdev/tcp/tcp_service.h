// tcp_service.h - the sockets of one context: who listens to them, and when.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "base/wake_event.h"
#include "softdev/common/at_exit.h"
#include "softdev/tcp/tcp_addresses.h"
#include "softdev/tcp/tcp_protocol.h"
#include "softdev/tcp/tcp_served.h"
#include "softdev/tcp/tcp_socket.h"

namespace rdmacomm::softdev {

class PortWatch;
class TargetFinder;
class TcpOwners;
struct LocalPremises;

/// What a TcpService uses of its context. Lives longer than the service.
struct TcpPremises {
  const LocalPremises& local;
  TcpOwners& owners;
  PortWatch& port;
  TargetFinder& finder;
  /// The addresses that it may listen at, see kListenVariable; nothing: all of them.
  const std::optional<TcpAddresses>& addresses;
};

/// Has the requests of other hosts carried out, and brings the answers to this context's own. A thread of its own waits for
/// them, so that the application need not do anything; whoever polls a completion queue in vain looks, too, and saves the
/// time that a thread takes to wake up.
/// Threads: any.
class TcpService {
 public:
  explicit TcpService(const TcpPremises& premises) : premises_(premises) {}
  TcpService(const TcpService&) = delete;
  TcpService& operator=(const TcpService&) = delete;
  ~TcpService() { stop(); }

  /// Listens for requests to queue pair `qpn` at an address of this host. 0, or an errno value: EADDRINUSE, somebody else has its port;
  /// EADDRNOTAVAIL, it is not one of kListenVariable's.
  [[nodiscard]] int serve(std::uint32_t qpn, const ibv_gid& address);
  /// The same at all addresses that kListenVariable allows.
  [[nodiscard]] int serve_everywhere(std::uint32_t qpn);
  void stop();

  /// Whether there is anything to do for poll(): who sees that sees what start() has made.
  [[nodiscard]] bool active() const noexcept { return active_.load(std::memory_order_acquire); }
  /// Goes on with what can go on, unless somebody else does. false: there was nothing.
  bool poll() noexcept;
  /// Who polled may be about to sleep: the thread is to look again.
  void polls_end() noexcept;

  // With the send queue held or not:
  /// Tells queue pair `qpn` (TcpOwner::advance) when this socket can send or receive, until it is closed or connected().
  void watch_initiator(int socket, std::uint32_t qpn) noexcept;
  void change_initiator(int socket, std::uint32_t qpn, bool wants_output) noexcept;
  /// A queue pair's connection is made, and is to be served from now on: the queue pair is to adopt it.
  struct Arrival {
    UniqueFd socket;
    Route route;
    TcpGreeting greeting;        ///< what it was greeted with
    std::uint32_t path_mtu = 0;  ///< the other end's
  };
  void connected(Arrival arrival);
  void watch_connection(int socket, std::uint64_t id, bool wants_output) noexcept;
  void change_connection(int socket, std::uint64_t id,
                         bool wants_output) noexcept;  ///< without effect while it is not watched
  void unwatch_connection(int socket) noexcept;

  [[nodiscard]] const TcpPremises& premises() const noexcept { return premises_; }

  /// Ends the connections of queue pair `qpn`. `comes_again`: those at the other end are to try to connect again.
  void forget_target(std::uint32_t qpn, bool comes_again);

 private:
  enum class Kind : std::uint8_t { kWake, kListener, kTarget, kInitiator };
  struct Watched {
    std::shared_ptr<TcpServed> served;
    int question = -1;
    std::uint32_t events = 0;  ///< that its socket is watched for
    std::uint32_t owing = 0;   ///< for so many polls it is in owing_
    std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
  };

  using Clock = std::chrono::steady_clock;

  struct Listener {
    UniqueFd socket;
    TcpAddresses addresses;
  };

  int start();
  [[nodiscard]] bool is_served_at(int listener, const ibv_gid& address);
  [[nodiscard]] int serve_at(std::uint32_t qpn, const TcpAddresses& wanted);
  void run();
  bool leave_it_to_pollers() noexcept;
  void take_back_from_pollers(Clock::time_point now) noexcept;
  void get_ready_to_sleep() noexcept;
  void have_last_words_said() noexcept;
  void say_last_words() noexcept;
  void hurry_thread() noexcept;
  void wake_thread() noexcept;
  void handle_all(std::span<const epoll_event> events);
  void handle(std::uint64_t what, std::uint32_t events);
  void end_if_over(std::uint64_t id, std::uint32_t events);
  void accept_all(int listener);
  [[nodiscard]] bool has_room_for_another() const;
  void make_room_for_another();
  void stop_accepting(int listener);
  void accept_again();
  void check_unidentified();
  void note_find() noexcept;
  bool look();
  bool look_at_few();
  void watch_all();
  void receive_arrivals();
  void serve_arrival(Arrival arrival);
  bool advance(std::uint64_t id);
  void make_room_for(std::uint64_t sender);
  [[nodiscard]] std::optional<std::uint64_t> sender_to_go(std::uint64_t new_sender) const;
  void drop(std::uint64_t id);
  void watch(std::uint64_t id, Watched& watched);
  void advance_waiting();
  void answer_owed(bool all);
  [[nodiscard]] int pause();
  void control(int operation, int socket, std::uint32_t events, Kind kind, std::uint64_t id) noexcept;

  const TcpPremises premises_;
  std::atomic<bool> active_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint32_t> polls_{0};
  std::atomic<std::uint32_t> vain_polls_{0};  // in a row, that found somebody else at it
  std::atomic<bool> polls_ended_{false};
  std::atomic<bool> has_arrivals_{false};
  std::atomic<bool> process_ends_{false};     // the thread is to answer what is owed, and to say so by said_
  std::atomic<bool> left_to_pollers_{false};  // the thread sleeps, for a millisecond at a time; changes under mutex_
  // Of the thread alone.
  std::uint32_t polls_seen_ = 0;
  Clock::time_point left_since_{};
  Clock::time_point trust_again_at_{};
  std::chrono::milliseconds mistrust_{1};

  UniqueFd epoll_;
  WakeEvent wake_;
  WakeEvent said_;
  std::thread thread_;
  std::mutex start_mutex_;                       // taken by who holds a send queue; guards
  std::map<std::uint16_t, Listener> listeners_;  // by port
  std::vector<Arrival> arrivals_;
  std::mutex mutex_;  // never taken by who holds a send queue; guards what follows
  std::map<std::uint64_t, Watched> targets_;
  std::set<std::uint64_t> waiting_;   // targets that wait for what no socket tells of
  std::set<std::uint64_t> busy_;      // targets that have more to do already
  std::vector<std::uint64_t> owing_;  // targets that owe an answer, or were dropped since
  std::set<std::uint64_t> greeting_;  // targets that are not serving; of these,
  std::set<std::uint64_t> unknown_;   // those that have not said who they are, and
  std::set<std::uint64_t> over_;      // those that only have to close
  std::set<std::uint64_t> senders_;   // targets of datagrams
  std::set<int> deaf_;                // listeners with connections that could not be accepted
  bool is_full_ = false;              // because there were too many strangers
  Clock::time_point unidentified_due_{};
  std::uint64_t next_id_ = 1;
  std::uint32_t looks_ = 0;
  std::uint32_t finds_ = 0;
  bool has_unwatched_ = false;      // targets that are left to polls
  std::atomic<bool> woken_{false};  // wake_ has been written to since the thread looked
  // So long the thread sleeps at the most where no socket wakes it; changes under mutex_.
  std::atomic<int> pause_ms_{-1};
  std::optional<AtExit> at_exit_;
};

}  // namespace rdmacomm::softdev
