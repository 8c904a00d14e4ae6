// acceptor.h - how a server accepts its clients, until their handshakes begin. Private to the session layer.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "base/log_pace.h"
#include "connector/connector.h"
#include "connector/listener.h"
#include "connector/lookup.h"
#include "device/device_core.h"
#include "rdmacomm/deadline.h"
#include "rdmacomm/result.h"
#include "rdmacomm/session.h"
#include "session/control_loop.h"
#include "session/handshake_queue.h"
#include "session/handshakes.h"

namespace rdmacomm {

/// Listens, and starts, drops and ends handshakes as HandshakeQueue decides. If the system is short of descriptors,
/// threads or memory, it accepts no connection for a short time; connections then wait in the system's queue.
/// Threads: the control thread, except open(), close() and port().
class Acceptor {
 public:
  using Id = Handshakes::Id;
  /// Does one handshake, on its own thread.
  using SetUp = std::function<void(Id id, const std::shared_ptr<Connector>& connector)>;

  /// listener_id  the id with which the loop watches the listening socket
  Acceptor(const SessionOptions& options, ControlLoop& loop, ControlLoop::Id listener_id, Handshakes& handshakes,
           SetUp set_up);

  /// Listens at SessionOptions::address. Call it before the control thread starts. Returns  as listen_for()
  [[nodiscard]] Status open(const DeviceCore& device, const FindBy& find_by);
  /// Stops listening, so that no client connects to a socket at which no thread accepts.
  void close();
  /// The port; 0: it does not listen.
  /// Threads: any
  [[nodiscard]] std::uint16_t port() const noexcept { return port_.load(std::memory_order_relaxed); }

  /// Accepts the connections that have arrived.
  void accept_connections();
  /// Does the due work: starts and drops handshakes, and listens again after a pause.
  void take_turn();
  /// The time of the next turn, if no event occurs before.
  [[nodiscard]] Deadline next_turn() const { return pause_.value_or(Deadline::never()).sooner(queue_.next_look()); }
  /// Accepts no connection for a short time.
  void pause(const Status& why);
  /// The same without a log line, because that needs memory.
  void pause_silently();
  /// Refuses the waiting connections when the session stops.
  void refuse_waiting();

 private:
  void take_in(std::shared_ptr<Connector> connector);
  [[nodiscard]] bool make_room(const Status& failed);
  void settle();
  void start(Id id);
  void drop(Id id);
  void listen_again();
  void unwatch();

  const SessionOptions& options_;
  ControlLoop& loop_;
  const ControlLoop::Id listener_id_;
  Handshakes& handshakes_;
  const SetUp set_up_;

  std::atomic<std::uint16_t> port_{0};
  std::unique_ptr<Listener> listener_;
  bool listening_ = false;         // whether the loop watches the listening socket
  std::optional<Deadline> pause_;  // accept no connection until then
  HandshakeQueue queue_;
  std::map<Id, std::shared_ptr<Connector>> waiting_;  // connections that wait for a place in the handshake
  LogPace pause_pace_;
  LogPace drop_pace_;
};

}  // namespace rdmacomm
