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
  /// A client that has ordered nothing for so long gives way to one that waits.
  std::chrono::milliseconds rest{1000};
  /// How long a client may compute between two orders. After that it gives way, too.
  std::chrono::milliseconds thinking{60'000};
  /// How long a client may measure without the server seeing anything of it, whatever its plan says. After that it
  /// gives way, too; where the server takes part in the measurement, it then ends it even if no other client waits.
  std::chrono::milliseconds unseen{60'000};
  /// How long a client waits for its turn: less than it waits for the server's answer.
  std::chrono::milliseconds place_patience{5000};
};

/// Serves one client after the other: one, or any number with keep_serving. A client that comes while another one is
/// being served waits some seconds for its turn, and is refused then; so is one with a plan that this device cannot
/// follow, or that needs more memory than there is. These do not count as the one client, nor does one that leaves
/// before it has ordered anything.
/// Returns  as ServerSession::start; kPeerLost: the client died during its run; or as the operations
[[nodiscard]] Status run_server(const ServerOptions& options);

}  // namespace rdmacomm::benchmark
