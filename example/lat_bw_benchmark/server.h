// server.h - the server of the benchmark: follows the plans of its clients.
#pragma once

#include <cstdint>
#include <functional>

#include "rdmacomm/base/result.h"
#include "support/connection_flags.h"
#include "support/mode_flags.h"

namespace rdmacomm::benchmark {

struct ServerOptions {
  programs::ConnectionFlags connection = {};
  programs::ModeFlags modes = {};
  std::function<void(std::uint16_t port)> listening = {};  ///< called once clients can connect
};

/// Serves one client after the other: one, or any number with keep_serving. A client that comes while another one is
/// being served is refused; so is one with a plan that this device cannot follow. Neither counts as the one client.
/// Returns  as ServerSession::start; kPeerLost: the client died during its run; or as the operations
[[nodiscard]] Status run_server(const ServerOptions& options);

}  // namespace rdmacomm::benchmark
