// server.h - the server of ping_pong_test: waits for clients, checks their messages, and answers.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "rdmacomm/result.h"
#include "support/connection_flags.h"
#include "support/mode_flags.h"

namespace rdmacomm::ping_pong {

struct ServerOptions {
  /// The limit of the memory of all clients together; the clients of one host may use half of it. One client at a time
  /// may need more than that half, which is then counted separately.
  static constexpr std::uint64_t kSharedBytes = std::uint64_t{256} << 20;
  static constexpr int kGuests = 32;  ///< served at a time
  static constexpr int kGuestsOfAHost = 16;

  programs::ConnectionFlags connection = {};
  programs::ModeFlags modes = {};
  std::function<void(std::uint16_t port)> listening = {};  ///< called once clients can connect
  /// If all places are taken, a client that has done nothing for this long gives its place to a waiting client. The
  /// limit is longer if a message each way takes longer (time_on_slow_network(), at most kPatience).
  std::chrono::milliseconds rest{1000};
  /// If all places are taken, a client that has had a place for this long gives it to a client of a host that has none.
  std::chrono::milliseconds turn{60'000};
  /// How long a client waits for a place. Less than the time it waits for the server's answer.
  std::chrono::milliseconds place_patience{5000};
};

/// Serves clients at the same time: until one of them has had its run, or any number with keep_serving. A client that
/// disconnects before its first step does not count as a run.
/// Returns  as ServerSession::start; kPeerLost: the client died during its run; or as the operations
[[nodiscard]] Status run_server(const ServerOptions& options);

}  // namespace rdmacomm::ping_pong
