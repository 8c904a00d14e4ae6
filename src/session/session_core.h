// session_core.h - the object behind RDMASession: from its start to its stop, and from a connection to an endpoint.
// Private to the session layer.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/log_pace.h"
#include "device/device_core.h"
#include "rdmacomm/session.h"
#include "session/acceptor.h"
#include "session/completion_thread.h"
#include "session/control_loop.h"
#include "session/endpoint_registry.h"
#include "session/endpoint_setup.h"
#include "session/guarded_hooks.h"
#include "session/handshakes.h"
#include "session/queue_service.h"
#include "session/session_threads.h"

namespace rdmacomm {

/// One session. Its parts are the ControlLoop, the Acceptor of a server, the current Handshakes, the EndPointRegistry,
/// and the QueueService. This class combines them: it defines the path of a connection through them, the work of the
/// control thread, and the order in which they start and end. The control thread makes the transition from running to
/// stopped; stop() requests it, and waits.
///
/// While a lock of any of them is held, no hook is called, and no network operation is waited for.
/// Threads: any thread. Lifetime: stop() before the destructor, which no thread of the session may call.
class SessionCore final : private CompletionThread::Owner, private ControlLoop::Work {
 public:
  /// wants_completions  on_completion does something: an endpoint whose completions no thread takes is refused
  SessionCore(std::shared_ptr<SessionHooks> hooks, bool wants_completions, SessionOptions options, bool is_server);
  SessionCore(const SessionCore&) = delete;
  SessionCore& operator=(const SessionCore&) = delete;
  ~SessionCore() override;

  [[nodiscard]] Status start_server();
  [[nodiscard]] Result<std::shared_ptr<EndPointCore>> connect(const HostPort& server);
  [[nodiscard]] Result<std::shared_ptr<EndPointCore>> accept(Deadline deadline);
  void end_handshake(const std::string& peer_address, const Error& why);
  void stop();

  [[nodiscard]] bool stopped() const;
  [[nodiscard]] std::vector<std::shared_ptr<EndPointCore>> endpoints() const { return registry_.alive(); }
  [[nodiscard]] std::shared_ptr<DeviceCore> device() const;
  [[nodiscard]] std::uint16_t port() const { return acceptor_.port(); }
  [[nodiscard]] const SessionOptions& options() const noexcept { return options_; }

 private:
  using Id = ControlLoop::Id;
  enum class State : std::uint8_t { kNew, kStarting, kRunning, kStopping, kStopped };

  /// The functions of the session for one handshake, and the place of its endpoint.
  class SetUpHost;
  /// An endpoint that has ended because of the device: the control thread will call its fail().
  struct Failed {
    std::shared_ptr<EndPointCore> endpoint;
    Error why;
  };

  // Starting and stopping: session_core.cc
  Status ensure_running(const HostPort& address, Deadline reached_by);
  Status start_up(const HostPort& address, Deadline reached_by);
  Status open_device(const HostPort& address, Deadline reached_by);
  [[nodiscard]] Status check_host() const;
  Status make_events();
  Status open_control();
  void move_to(State next);
  void stop_listening();
  [[nodiscard]] bool is_inside() const;

  // Endpoints: session_endpoints.cc
  Result<std::shared_ptr<EndPointCore>> connect_once(const HostPort& server, Deadline reached_by);
  Result<std::shared_ptr<EndPointCore>> set_up_client(Id id, const std::shared_ptr<Connector>& connector);
  void set_up_server(Id id, const std::shared_ptr<Connector>& connector);
  [[nodiscard]] EndPointSetup setup(SetUpHost& host);
  void report_failed(const std::string& peer, const Error& why);
  Status establish(Id handshake, const std::shared_ptr<EndPointCore>& endpoint, SetUpHost& host);
  Status let_go_of(Id id, const std::shared_ptr<EndPointCore>& endpoint, bool& watched);
  void end_endpoint(Id id, const std::shared_ptr<EndPointCore>& endpoint);
  void end_if_over(Id id, const std::shared_ptr<EndPointCore>& endpoint);
  void endpoint_ended(EndPointCore& endpoint) override;
  void completion_thread_ended() override { loop_.wake(); }

  // The control thread: session_control.cc
  Deadline take_turn() override;
  void on_ready(Id id) override;
  void on_shortage(const Status& why) override;
  void tear_down() override;
  void check_endpoint(Id id);
  Deadline send_heartbeats();
  void end_endpoints();
  Status watch_device();
  void on_device_event(const DeviceEvent& event);
  void end_failed();
  void report_low_pools();

  static constexpr Id kListenerId = 1;
  static constexpr Id kDeviceId = 2;
  static constexpr Id kFirstEndPointId = 3;

  const GuardedHooks hooks_;
  const SessionOptions options_;
  const bool is_server_;
  SessionCore* const host_;  // SessionOptions::queues_of, which may be moved meanwhile; nullptr: none
  const Hello hello_;
  InsideThreads inside_;

  ControlLoop loop_;
  Handshakes handshakes_{loop_};
  Acceptor acceptor_;
  EndPointRegistry registry_;
  QueueService queues_;

  Deadline heartbeat_ = Deadline::after({});  // time of the next heartbeats; used by the control thread
  LogPace refusal_pace_;                      // used by any thread

  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  State state_ = State::kNew;
  bool initialised_ = false;
  std::shared_ptr<DeviceCore> device_;
  std::vector<Failed> failed_;

  // Its callbacks lock mutexes of the members above, so it is set and reset without these locks. Declared last, so that
  // it is destroyed first and no callback runs during their destruction.
  DeviceEvents::Subscription device_events_;
};

}  // namespace rdmacomm
