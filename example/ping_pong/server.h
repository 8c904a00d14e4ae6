// server.h - the side of ping_pong_test that waits for clients, checks what they send, and answers.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "rdmacomm/result.h"
#include "support/connection_flags.h"
#include "support/mode_flags.h"

namespace rdmacomm::ping_pong {

struct ServerOptions {
  /// What the memory for all clients together takes at most, half of it for those of one host. One client at a time may
  /// need more than that half, for itself.
  static constexpr std::uint64_t kSharedBytes = std::uint64_t{256} << 20;
  static constexpr int kGuests = 32;  ///< served at a time
  static constexpr int kGuestsOfAHost = 16;

  programs::ConnectionFlags connection = {};
  programs::ModeFlags modes = {};
  std::function<void(std::uint16_t port)> listening = {};  ///< called once clients can connect
  /// A client that has done nothing for this long, or for the time of a message each way (time_on_slow_network(), at
  /// most kPatience), gives its place to one that waits, if all places are taken.
  std::chrono::milliseconds rest{1000};
  /// A client that has had a place for so long gives it to one of a host that has none, if all places are taken.
  std::chrono::milliseconds turn{60'000};
  /// How long a client waits for a place: less than it waits for the server's answer.
  std::chrono::milliseconds place_patience{5000};
};

/// Serves clients beside each other: until one of them has had its run, or any number with keep_serving. A client that
/// leaves before it has asked for anything has had none.
/// Returns  as ServerSession::start; kPeerLost: the client died during its run; or as the operations
[[nodiscard]] Status run_server(const ServerOptions& options);

}  // namespace rdmacomm::ping_pong
