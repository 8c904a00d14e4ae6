// handshakes.h - the current handshakes of a session. Private to the session layer.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "connector/connector.h"
#include "rdmacomm/result.h"
#include "session/control_loop.h"

namespace rdmacomm {

/// A client's handshake runs on the thread that called connect(), a server's on its own thread, so that a slow peer
/// delays no other one. Threads: any thread, unless a function says otherwise.
class Handshakes {
 public:
  using Id = std::uint64_t;

  /// loop  is woken when a handshake of a server has ended, so that it calls join_finished()
  explicit Handshakes(ControlLoop& loop) noexcept : loop_(loop) {}

  [[nodiscard]] Id next_id();

  // Client --------------------------------------------------------------------------------------------------------

  /// Begins a handshake; join() waits for it until end(). Returns kStopped
  [[nodiscard]] Result<Id> begin();
  /// The handshake has a connection. Returns kStopped
  [[nodiscard]] Status connected(Id id, std::shared_ptr<Connector> connector);
  void end(Id id);

  // Server --------------------------------------------------------------------------------------------------------

  /// Calls run() on a new thread. Returns  kStopped; as start_thread
  [[nodiscard]] Status start(Id id, std::shared_ptr<Connector> connector, std::function<void()> run);
  /// Joins the threads whose run() has returned, and calls report() for each of them. Threads: the control thread
  void join_finished(const std::function<void(Id)>& report);

  // Client and server ---------------------------------------------------------------------------------------------

  /// The endpoint owns the connector from now on: stop() and find() ignore it.
  void hand_over(Id id);
  /// The connector of a handshake; nullptr: none, or it was handed over.
  [[nodiscard]] std::shared_ptr<Connector> connector(Id id) const;
  /// The connector of a peer; nullptr: as connector()
  [[nodiscard]] std::shared_ptr<Connector> find(const std::string& peer_address) const;
  /// Allows no new handshakes. Returns  the connectors of the current ones, which the caller shuts down
  [[nodiscard]] std::vector<std::shared_ptr<Connector>> stop();
  /// After stop(): waits until all handshakes have ended.
  void join();

 private:
  struct Handshake {
    std::shared_ptr<Connector> connector;
    std::thread thread;  ///< used at a server
    bool done = false;   ///< whether its run() has returned
  };

  void finished(Id id);

  ControlLoop& loop_;
  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  bool stopped_ = false;
  Id next_id_ = 1;
  std::map<Id, Handshake> all_;
  int clients_ = 0;
};

}  // namespace rdmacomm
