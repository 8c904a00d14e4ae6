// peer_directory.h - the contexts that a context's queue pairs are connected to.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "base/unique_fd.h"

namespace rdmacomm::softdev {

class Peer;

/// What serves the same context's queue pairs to other processes, as its PeerDirectory uses it.
/// Threads: any.
class PeerServer {
 public:
  PeerServer() = default;
  PeerServer(const PeerServer&) = delete;
  PeerServer& operator=(const PeerServer&) = delete;
  virtual ~PeerServer() = default;

  /// Whether the context's own queue pairs have this number, or may have it.
  [[nodiscard]] virtual bool serves(std::uint32_t qpn) = 0;
  /// A connection to this context itself, which needs no name to be found by. Not valid, and errno.
  [[nodiscard]] virtual UniqueFd connect_to_itself() = 0;
  /// Marks `peer` as dead once its connection ends.
  virtual void watch(const std::shared_ptr<Peer>& peer) = 0;
};

/// The contexts that this one's queue pairs are connected to.
/// Threads: any.
class PeerDirectory {
 public:
  explicit PeerDirectory(PeerServer& server) : server_(server) {}
  /// The owner of `qpn`, connected to if need be. nullptr and `error`: see Peer::connect. Who does not answer is not asked
  /// again for a while: ETIMEDOUT at once.
  [[nodiscard]] std::shared_ptr<Peer> get(std::uint32_t qpn, int& error);

 private:
  using Clock = std::chrono::steady_clock;
  /// As long as one attempt waits. A program with queue pairs to a stopped process must get to its other peers, too.
  static constexpr std::chrono::seconds kSilentFor{5};
  /// The process that has a block of numbers. The lock is held while this one process is asked, so a stopped process delays only
  /// those who want to reach it.
  struct Owner {
    std::mutex mutex;
    std::weak_ptr<Peer> peer;
    Clock::time_point silent_until;
  };
  [[nodiscard]] std::shared_ptr<Owner> owner_of(std::uint32_t block);

  PeerServer& server_;
  std::mutex mutex_;
  std::map<std::uint32_t, std::shared_ptr<Owner>> by_block_;
};

}  // namespace rdmacomm::softdev
