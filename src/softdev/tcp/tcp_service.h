// tcp_service.h - serves the TCP sockets of one context.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
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
#include "softdev/tcp/tcp_last_datagrams.h"
#include "softdev/tcp/tcp_protocol.h"
#include "softdev/tcp/tcp_served.h"
#include "softdev/tcp/tcp_socket.h"

namespace rdmacomm::softdev {

class PortWatch;
class TargetFinder;
class TcpOwners;
struct LocalPremises;

/// The parts of a context that a TcpService uses. Outlives the service.
struct TcpPremises {
  const LocalPremises& local;
  TcpOwners& owners;
  PortWatch& port;
  TargetFinder& finder;
  /// The addresses at which it may listen, see kListenVariable; no value: all of them.
  const std::optional<TcpAddresses>& addresses;
};

/// Executes the requests of other hosts, and receives the answers to the context's own requests. Its thread waits for
/// both, so the application does not have to. A poll of an empty completion queue checks the sockets, too, which saves
/// the time that the thread takes to wake up.
/// Threads: any.
class TcpService {
 public:
  explicit TcpService(const TcpPremises& premises) : premises_(premises) {}
  TcpService(const TcpService&) = delete;
  TcpService& operator=(const TcpService&) = delete;
  ~TcpService() { stop(); }

  /// Listens for requests to queue pair `qpn` at an address of this host. Returns 0, or an errno value. EADDRINUSE:
  /// another process has its port; EADDRNOTAVAIL: kListenVariable does not include the address.
  [[nodiscard]] int serve(std::uint32_t qpn, const ibv_gid& address);
  /// The same at all addresses that kListenVariable allows.
  [[nodiscard]] int serve_everywhere(std::uint32_t qpn);
  void stop();

  /// True if poll() has work. A thread that sees true also sees the objects that start() has made.
  [[nodiscard]] bool active() const noexcept { return active_.load(std::memory_order_acquire); }
  /// Continues all connections that can continue, unless another thread does. Returns false: nothing was found.
  bool poll() noexcept;
  /// The polling thread may be about to sleep, so the service's thread must check again.
  void polls_end() noexcept;

  // With or without the send queue's lock:
  /// Calls TcpOwner::advance() of queue pair `qpn` when this socket can send or receive, until it is closed or
  /// connected().
  void watch_initiator(int socket, std::uint32_t qpn) noexcept;
  void change_initiator(int socket, std::uint32_t qpn, bool wants_output) noexcept;
  /// An established connection of a queue pair. The service serves it from now on, and the queue pair adopts it.
  struct Arrival {
    UniqueFd socket;
    Route route;
    TcpGreeting greeting;  ///< the greeting that it was established with
    TcpLimits limits;      ///< of the peer
  };
  void connected(Arrival arrival);
  void watch_connection(int socket, std::uint64_t id, bool wants_output) noexcept;
  void change_connection(int socket, std::uint64_t id,
                         bool wants_output) noexcept;  ///< no effect if it is not watched
  void unwatch_connection(int socket) noexcept;

  [[nodiscard]] const TcpPremises& premises() const noexcept { return premises_; }

  /// Other hosts' datagrams to a multicast group are for queue pair `qpn`, too, until leave_group() or its end. Returns
  /// 0, or an errno value: it gets those of this host only.
  [[nodiscard]] int join_group(std::uint32_t qpn, const ibv_gid& group);
  void leave_group(std::uint32_t qpn, const ibv_gid& group);
  /// Sends the datagrams that a queue pair has left, see TcpLastDatagrams.
  void send_last(std::list<TcpDatagrams>&& senders);
  /// Ends the connections of queue pair `qpn`. comes_again: their peers shall try to connect again.
  void forget_target(std::uint32_t qpn, bool comes_again);

 private:
  enum class Kind : std::uint8_t { kWake, kListener, kTarget, kInitiator };
  struct Watched {
    std::shared_ptr<TcpServed> served;
    int question = -1;
    std::uint32_t events = 0;  ///< watched events of its socket
    std::uint32_t owing = 0;   ///< number of polls since it is in owing_
    std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
  };

  using Clock = std::chrono::steady_clock;

  struct Listener {
    UniqueFd socket;
    TcpAddresses addresses;
  };

  int start();
  template <typename Concerns>
  void end_those(Concerns&& concerns);
  [[nodiscard]] bool is_served_at(int listener, const ibv_gid& address);
  [[nodiscard]] bool is_devices(const ibv_gid& address);
  [[nodiscard]] int serve_at(std::uint32_t qpn, const TcpAddresses& wanted);
  void run();
  [[nodiscard]] bool is_over() noexcept;
  bool leave_sockets_to_polls() noexcept;
  void take_back_from_pollers(Clock::time_point now) noexcept;
  void get_ready_to_sleep() noexcept;
  void await_last_messages() noexcept;
  void send_last_messages() noexcept;
  [[nodiscard]] bool has_unsent_datagrams() noexcept;
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
  std::atomic<std::uint32_t> vain_polls_{0};  // in a row, that found another thread at work
  std::atomic<bool> polls_ended_{false};
  std::atomic<bool> has_arrivals_{false};
  std::atomic<bool> process_ends_{false};   // the thread must send what is left, then signal last_messages_sent_
  std::atomic<bool> read_by_polls_{false};  // the thread sleeps, 1 ms at a time; changes under mutex_
  // For the thread only.
  std::uint32_t polls_seen_ = 0;
  Clock::time_point read_by_polls_since_{};
  Clock::time_point trust_again_at_{};
  std::chrono::milliseconds mistrust_{1};

  UniqueFd epoll_;
  WakeEvent wake_;
  WakeEvent last_messages_sent_;
  std::thread thread_;
  std::mutex start_mutex_;                       // may be taken with a send queue's lock held; guards
  std::map<std::uint16_t, Listener> listeners_;  // by port
  std::vector<Arrival> arrivals_;
  std::mutex mutex_;  // never taken with a send queue's lock held; guards the members below
  std::map<std::uint64_t, Watched> targets_;
  std::set<std::uint64_t> waiting_;   // targets that wait for something that no socket reports
  std::set<std::uint64_t> busy_;      // targets that can continue at once
  std::vector<std::uint64_t> owing_;  // targets that owe an answer, or were dropped since
  std::set<std::uint64_t> greeting_;  // targets that are not serving; among these,
  std::set<std::uint64_t> unknown_;   // not identified yet, and
  std::set<std::uint64_t> over_;      // only waiting for the peer to close
  std::set<std::uint64_t> senders_;   // targets of datagrams
  std::set<int> paused_listeners_;    // listeners with connections that could not be accepted
  TcpLastDatagrams last_datagrams_;
  bool is_full_ = false;  // because too many connections were not identified
  Clock::time_point unidentified_due_{};
  std::uint64_t next_id_ = 1;
  std::uint32_t looks_ = 0;
  std::uint32_t finds_ = 0;
  bool has_unwatched_ = false;      // some targets are not in the epoll set
  std::atomic<bool> woken_{false};  // wake_ was signalled since the thread last checked
  // The thread sleeps at most this long, in ms, unless a socket wakes it; -1: no limit. Changes under mutex_.
  std::atomic<int> pause_ms_{-1};
  std::optional<AtExit> at_exit_;
};

}  // namespace rdmacomm::softdev
