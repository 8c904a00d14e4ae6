// server.h - the server of the benchmark: follows the plans of its clients.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "rdmacomm/result.h"
#include "support/connection_flags.h"
#include "support/mode_flags.h"

namespace rdmacomm::benchmark {

struct ServerOptions {
  programs::ConnectionFlags connection = {};
  programs::ModeFlags modes = {};
  std::function<void(std::uint16_t port)> listening = {};  ///< called once clients can connect
  /// A client that has sent no order for this long gives its place to a waiting client.
  std::chrono::milliseconds rest{1000};
  /// How long a client may compute between two orders. After that it can lose its place, too.
  std::chrono::milliseconds thinking{60'000};
  /// How long a client may measure without visible progress, whatever its plan says. After that it can lose its place,
  /// too. If the server takes part in the measurement, it then ends the run even if no other client waits.
  std::chrono::milliseconds unseen{60'000};
  /// How long a client waits for its turn. Less than the time it waits for the server's answer.
  std::chrono::milliseconds place_patience{5000};
};

/// Serves one client after the other: one, or any number with keep_serving. If a client arrives while another one is
/// served, it waits some seconds for its turn, and is then refused. A client is also refused if this device cannot
/// follow its plan, or if the plan needs more memory than is available. Refused clients do not count as the one client,
/// nor do clients that disconnect before their first order.
/// Returns  as ServerSession::start; kPeerLost: the client died during its run; or as the operations
[[nodiscard]] Status run_server(const ServerOptions& options);

}  // namespace rdmacomm::benchmark
