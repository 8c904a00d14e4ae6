// peer_directory.h - the contexts that a context's queue pairs are connected to.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "softdev/context/server.h"

namespace rdmacomm::softdev {

class Peer;

/// The contexts that this one's queue pairs are connected to.
/// Threads: any.
class PeerDirectory {
 public:
  explicit PeerDirectory(Server& server) : server_(server) {}
  /// The owner of `qpn`, connected to if need be. nullptr and `error`: see Peer::connect. Who does not answer is not
  /// asked again for a while: ETIMEDOUT at once.
  [[nodiscard]] std::shared_ptr<Peer> get(std::uint32_t qpn, int& error);

 private:
  using Clock = std::chrono::steady_clock;
  /// As long as one attempt waits. A program with queue pairs to a stopped process must get to its other peers, too.
  static constexpr std::chrono::seconds kSilentFor{5};
  /// The process that has a block of numbers. The lock is held while this one process is asked, so a stopped process
  /// delays only those who want to reach it.
  struct Owner {
    std::mutex mutex;
    std::weak_ptr<Peer> peer;
    Clock::time_point silent_until;
  };
  [[nodiscard]] std::shared_ptr<Owner> owner_of(std::uint32_t block);

  Server& server_;
  std::mutex mutex_;
  std::map<std::uint32_t, std::shared_ptr<Owner>> by_block_;
};

}  // namespace rdmacomm::softdev
