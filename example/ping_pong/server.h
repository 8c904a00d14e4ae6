// server.h - the side of ping_pong_test that waits for clients, checks what they send, and answers.
#pragma once

#include <cstdint>
#include <functional>

#include "rdmacomm/base/result.h"
#include "support/connection_flags.h"
#include "support/mode_flags.h"

namespace rdmacomm::ping_pong {

struct ServerOptions {
  programs::ConnectionFlags connection = {};
  programs::ModeFlags modes = {};
  std::function<void(std::uint16_t port)> listening = {};  ///< called once clients can connect
};

/// Serves one client after the other: one, or any number with keep_serving.
/// Returns  as ServerSession::start; kPeerLost: the client died during its run; or as the operations
[[nodiscard]] Status run_server(const ServerOptions& options);

}  // namespace rdmacomm::ping_pong
