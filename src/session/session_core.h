// session_core.h - what is behind RDMASession: the control thread and the lists it keeps. Private to the session layer.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/log_pace.h"
#include "base/unique_fd.h"
#include "base/wake_event.h"
#include "channel/receive_pool_core.h"
#include "connector/listener.h"
#include "device/device_core.h"
#include "rdmacomm/polling.h"
#include "rdmacomm/session.h"
#include "session/completion_thread.h"
#include "session/endpoint_setup.h"
#include "session/guarded_hooks.h"
#include "session/handshake_queue.h"
#include "session/session_threads.h"

namespace rdmacomm {

/// One session. The control thread owns the way from running to stopped: stop() asks, and waits for it.
/// No hook is called, and nothing of the network or of the device is waited for, while mutex_ is held: no queue pair is
/// destroyed, and no event taken.
/// Threads: all functions from any. Lifetime: stop() before the destructor, from no thread of the session.
class SessionCore final : private CompletionThread::Owner {
 public:
  SessionCore(std::shared_ptr<SessionHooks> hooks, SessionOptions options, bool is_server);
  SessionCore(const SessionCore&) = delete;
  SessionCore& operator=(const SessionCore&) = delete;
  ~SessionCore() override;

  [[nodiscard]] Status start_server();
  [[nodiscard]] Result<std::shared_ptr<EndPointCore>> connect(const HostPort& server);
  [[nodiscard]] Result<std::shared_ptr<EndPointCore>> accept(Deadline deadline);
  void end_handshake(const std::string& peer_address, const Error& why);
  void stop();

  [[nodiscard]] bool stopped() const;
  [[nodiscard]] std::vector<std::shared_ptr<EndPointCore>> endpoints() const;
  [[nodiscard]] std::shared_ptr<DeviceCore> device() const;
  [[nodiscard]] std::uint16_t port() const;
  [[nodiscard]] const SessionOptions& options() const noexcept { return options_; }

 private:
  using Id = std::uint64_t;
  enum class State : std::uint8_t { kNew, kStarting, kRunning, kStopping, kStopped };
  /// The place among max_endpoints that a handshake has taken, until its endpoint has it. Guarded by mutex_.
  struct Admission {
    SourceNetwork source = {};
    bool held = false;
  };

  /// What endpoints, and handshakes that may become some, have of such a bound.
  struct Places {
    int endpoints = 0;
    int on_their_way = 0;
    [[nodiscard]] int taken() const noexcept { return endpoints + on_their_way; }
  };

  /// A handshake under way. A client's runs on the thread that called connect().
  struct Setup {
    std::shared_ptr<Connector> connector;  ///< empty once the endpoint has it: no business of the setup's any more
    std::thread thread;
    bool done = false;
  };

  /// The completion queues of one key. They stay until the session stops.
  struct SharedQueues {
    PollingMode polling_mode = PollingMode::kBusyPoll;
    int most = 1;
    std::vector<CompletionThread*> threads = {};
  };

  /// How endpoints, which may outlive the session, come back to it.
  struct Door {
    std::mutex mutex;
    SessionCore* core = nullptr;
  };

  /// An endpoint that the device has ended: the control thread will say so to it.
  struct Failed {
    std::shared_ptr<EndPointCore> endpoint;
    Error why;
  };

  // Starting and stopping: session_core.cc
  Status ensure_running(const HostPort& address, Deadline reached_by);
  Status start_up(const HostPort& address, Deadline reached_by);
  Status open_device(const HostPort& address, Deadline reached_by);
  Status make_stop_event();
  Status open_control();
  void move_to(State next);
  std::vector<std::shared_ptr<Connector>> request_stop(std::unique_lock<std::mutex>& lock);
  void stop_listening();
  void join_control(std::unique_lock<std::mutex>& lock);
  [[nodiscard]] bool stopping() const;
  [[nodiscard]] bool is_inside() const;

  // Endpoints: session_endpoints.cc
  Result<std::shared_ptr<EndPointCore>> connect_once(const HostPort& server, Deadline reached_by);
  Result<std::shared_ptr<EndPointCore>> set_up_client(Id id, const std::shared_ptr<Connector>& connector);
  void report_failed(const std::string& peer, const Error& why);
  void set_up_server(Id id, const std::shared_ptr<Connector>& connector);
  [[nodiscard]] EndPointSetup setup(Admission& admission);
  Status admit(Admission& admission);
  void give_up_locked(Admission& admission);
  void change_places_locked(const SourceNetwork& source, const Places& by);
  Result<std::shared_ptr<CompletionGroup>> shared_group(const HcaConfig& config);
  [[nodiscard]] SessionCore& host() noexcept { return host_; }
  Status serve(const std::shared_ptr<EndPointCore>& endpoint, const CompletionThread::Session& session);
  Result<std::shared_ptr<ReceivePoolCore>> receive_pool(const HcaConfig& config);
  Status establish(Id setup_id, const std::shared_ptr<EndPointCore>& endpoint, Admission& admission);
  Status enlist(const std::shared_ptr<EndPointCore>& endpoint);
  Status serve_group(const std::shared_ptr<EndPointCore>& endpoint, const std::shared_ptr<CompletionGroup>& group);
  Status serve_group_locked(const std::shared_ptr<EndPointCore>& endpoint,
                            const std::shared_ptr<CompletionGroup>& group);
  Result<std::shared_ptr<CompletionGroup>> new_shared_group_locked(SharedQueues& shared, const HcaConfig& config);
  Result<CompletionThread*> start_thread_locked(std::shared_ptr<CompletionGroup> group, const ThreadOptions& options,
                                                std::size_t index);
  Result<Id> enter(Id setup_id, const std::shared_ptr<EndPointCore>& endpoint, Admission& admission);
  Status let_go_of(Id id, const std::shared_ptr<EndPointCore>& endpoint, bool& watched);
  Status offer(const std::shared_ptr<EndPointCore>& endpoint);
  Status watch_peer(Id id, EndPointCore& endpoint);
  void forget(Id id);
  [[nodiscard]] std::vector<std::shared_ptr<EndPointCore>> prune_unclaimed_locked();
  void endpoint_ended(EndPointCore& endpoint) override;
  void completion_thread_ended() override;

  // What the device reports: session_device.cc
  Status watch_device();
  void on_device_event(const DeviceEvent& event);
  void end_failed();
  void note_low_locked(const ibv_srq* queue);
  void tell_of_low_pools();

  // The control thread: session_control.cc
  void run_control();
  void take_turn();
  void rest(const Status& why);
  void handle(Id id);
  void accept_connections();
  void take_in(std::shared_ptr<Connector> connector);
  bool make_room_to_accept(const Status& failed);
  void settle_handshakes();
  void start_handshake(Id id);
  void drop_handshake(Id id);
  void refuse_waiting();
  void listen_again();
  void pause_listening(const Status& why);
  void unwatch_listener();
  void check_endpoint(Id id);
  Deadline give_signs_of_life();
  void end_if_over(Id id, const std::shared_ptr<EndPointCore>& endpoint);
  void end_endpoint(Id id, const std::shared_ptr<EndPointCore>& endpoint);
  void reap();
  void tear_down();
  void join_setups();
  void end_endpoints();

  static constexpr Id kWakeId = 0;
  static constexpr Id kListenerId = 1;
  static constexpr Id kDeviceId = 2;
  static constexpr Id kFirstId = 3;

  GuardedHooks hooks_;
  const SessionOptions options_;
  const bool is_server_;
  SessionCore&
      host_;  // whose shared completion queues this session uses: its own, or those of SessionOptions::queues_of
  const Hello hello_;
  InsideThreads inside_;
  InsideThreads serving_;  // completion threads: inside this session, and inside those whose endpoints they serve, too
  const std::shared_ptr<Door> door_ = std::make_shared<Door>();

  // Made once by start_up(), before the control thread and everything else that reads them.
  std::optional<WakeEvent> stop_event_;
  std::optional<WakeEvent> wake_event_;
  UniqueFd epoll_;
  std::unique_ptr<Listener> listener_;
  std::thread control_;

  // The control thread's own.
  bool listening_ = false;
  Deadline heartbeat_ = Deadline::after({});  // when the next ones are due
  std::optional<Deadline> pause_;             // the system is out of descriptors or threads: accept nobody until then
  HandshakeQueue handshakes_;                 // a server's
  std::map<Id, std::shared_ptr<Connector>> waiting_;  // for a place in the handshake
  LogPace pause_pace_;
  LogPace drop_pace_;

  LogPace refusal_pace_;  // any thread's

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  State state_ = State::kNew;
  bool joining_ = false;
  bool initialised_ = false;
  std::shared_ptr<DeviceCore> device_;
  std::uint16_t port_ = 0;
  std::vector<Failed> failed_;
  Id next_id_ = kFirstId;
  std::map<Id, Setup> setups_;
  int client_setups_ = 0;
  int admitted_ = 0;                           // on their way to become endpoints
  std::map<SourceNetwork, Places> places_of_;  // a server's, by their source
  std::map<Id, std::shared_ptr<EndPointCore>> endpoints_;
  std::set<Id> watched_;  // of endpoints_: their beginning has been told, so their end may be
  std::deque<std::shared_ptr<EndPointCore>> unclaimed_;
  std::list<std::unique_ptr<CompletionThread>> completion_threads_;
  std::map<std::string, SharedQueues> shared_queues_;                      // by HcaConfig::shared_queue_key
  std::map<std::string, std::shared_ptr<ReceivePoolCore>> receive_pools_;  // by HcaConfig::receive_pool_key
  int served_elsewhere_ = 0;                                               // endpoints on queues of host()
  std::size_t endpoint_threads_ = 0;  // of one endpoint or channel each, ever started

  // Its calls take mutex_: it is taken and given back without. The last member: no call comes when the others go.
  DeviceEvents::Subscription device_events_;
};

}  // namespace rdmacomm
