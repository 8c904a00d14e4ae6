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

/// Serves a context's queue pairs to other processes; the context's PeerDirectory uses it.
/// Threads: any.
class PeerServer {
 public:
  PeerServer() = default;
  PeerServer(const PeerServer&) = delete;
  PeerServer& operator=(const PeerServer&) = delete;
  virtual ~PeerServer() = default;

  /// True if the context's queue pairs have this number or may have it later.
  [[nodiscard]] virtual bool serves(std::uint32_t qpn) = 0;
  /// A connection to the context itself, made without a socket name. Not valid, and errno on failure.
  [[nodiscard]] virtual UniqueFd connect_to_itself() = 0;
  /// Marks `peer` as dead once its connection ends.
  virtual void watch(const std::shared_ptr<Peer>& peer) = 0;
};

/// The contexts to which the queue pairs of one context are connected.
/// Threads: any.
class PeerDirectory {
 public:
  explicit PeerDirectory(PeerServer& server) : server_(server) {}
  /// Returns the owner of `qpn`; connects to it if necessary. nullptr and `error`: see Peer::connect. After a timeout,
  /// further calls for the same owner fail at once with ETIMEDOUT for kSilentFor.
  [[nodiscard]] std::shared_ptr<Peer> get(std::uint32_t qpn, int& error);

 private:
  using Clock = std::chrono::steady_clock;
  /// Equal to the timeout of one attempt, so that a program with queue pairs to a stopped process still reaches its
  /// other peers.
  static constexpr std::chrono::seconds kSilentFor{5};
  /// The process that owns a block of numbers. The mutex is held during a request to this one process, so a stopped
  /// process delays only the threads that need it.
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
