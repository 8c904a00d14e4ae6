// handshakes.h - the handshakes of a session that are under way. Private to the session layer.
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

/// A client's handshake runs on the thread that called connect(), a server's on a thread of its own: a peer that is slow holds up
/// nobody else. Threads: any, unless a function says otherwise.
class Handshakes {
 public:
  using Id = std::uint64_t;

  /// loop  is woken when a server's has ended: join_finished() has something to do
  explicit Handshakes(ControlLoop& loop) noexcept : loop_(loop) {}

  [[nodiscard]] Id next_id();

  // A client's ----------------------------------------------------------------------------------------------------

  /// join() waits for it until end(). Returns kStopped
  [[nodiscard]] Result<Id> begin();
  /// It has a connection. Returns kStopped
  [[nodiscard]] Status connected(Id id, std::shared_ptr<Connector> connector);
  void end(Id id);

  // A server's ----------------------------------------------------------------------------------------------------

  /// Calls run() on a thread of its own. Returns  kStopped; as start_thread
  [[nodiscard]] Status start(Id id, std::shared_ptr<Connector> connector, std::function<void()> run);
  /// Joins the threads whose run() has returned, and calls tell() with each of them. Threads: the control thread
  void join_finished(const std::function<void(Id)>& tell);

  // Both ----------------------------------------------------------------------------------------------------------

  /// The endpoint has the connector now: stop() and find() do not know it any more.
  void hand_over(Id id);
  /// nullptr: none, or it was handed over.
  [[nodiscard]] std::shared_ptr<Connector> connector(Id id) const;
  /// That of a peer. nullptr: as connector()
  [[nodiscard]] std::shared_ptr<Connector> find(const std::string& peer_address) const;
  /// No new ones from now on. Returns  the connectors of those under way, which the caller shuts down
  [[nodiscard]] std::vector<std::shared_ptr<Connector>> stop();
  /// After stop(): waits for all of them.
  void join();

 private:
  struct Handshake {
    std::shared_ptr<Connector> connector;
    std::thread thread;  ///< a server's
    bool done = false;   ///< its run() has returned
  };

  void finished(Id id);

  ControlLoop& loop_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool stopped_ = false;
  Id next_id_ = 1;
  std::map<Id, Handshake> all_;
  int clients_ = 0;
};

}  // namespace rdmacomm
