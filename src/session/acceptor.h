// acceptor.h - how a server takes its clients in, until their handshakes begin. Private to the session layer.
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

/// Listens, and starts, drops and ends handshakes as HandshakeQueue decides. If the system is short of descriptors, threads or
/// memory, it accepts nobody for a moment: connections then wait in the system's queue.
/// Threads: the control thread, but for open(), close() and port().
class Acceptor {
 public:
  using Id = Handshakes::Id;
  /// Does one handshake, on a thread of its own.
  using SetUp = std::function<void(Id id, const std::shared_ptr<Connector>& connector)>;

  /// listener_id  under which the loop watches the listening socket
  Acceptor(const SessionOptions& options, ControlLoop& loop, ControlLoop::Id listener_id, Handshakes& handshakes,
           SetUp set_up);

  /// Listens at SessionOptions::address. Before the control thread. Returns  as listen_for()
  [[nodiscard]] Status open(const DeviceCore& device, const FindBy& find_by);
  /// Listens no more. Nobody is to find a socket at which nobody accepts.
  void close();
  /// 0: it does not listen. Threads: any
  [[nodiscard]] std::uint16_t port() const noexcept { return port_.load(std::memory_order_relaxed); }

  /// Takes those in that have arrived.
  void accept_connections();
  /// What is due: handshakes to start and to drop, and listening again after a pause.
  void take_turn();
  /// When the next turn is, if nothing happens.
  [[nodiscard]] Deadline next_turn() const { return pause_.value_or(Deadline::never()).sooner(queue_.next_look()); }
  /// Accepts nobody for a moment.
  void pause(const Status& why);
  /// The same without a log line, which needs memory.
  void pause_silently();
  /// Refuses those that still wait when the session stops.
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
  bool listening_ = false;         // the loop watches it
  std::optional<Deadline> pause_;  // accept nobody until then
  HandshakeQueue queue_;
  std::map<Id, std::shared_ptr<Connector>> waiting_;  // for a place in the handshake
  LogPace pause_pace_;
  LogPace drop_pace_;
};

}  // namespace rdmacomm
