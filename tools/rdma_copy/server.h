// server.h - the server of a copy, which waits for clients.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "rdma_copy/watch.h"
#include "rdmacomm/result.h"
#include "support/connection_flags.h"
#include "support/mode_flags.h"

namespace rdmacomm::copying {

struct ServerOptions {
  programs::ConnectionFlags connection = {};  ///< with the address to listen at
  programs::ModeFlags modes = {};
  std::string root = {};
  unsigned mask = 022;  ///< as Destination::mask
  std::chrono::milliseconds timeout = kTimeout;
  std::function<void(std::uint16_t port)> listening = {};  ///< called once clients can connect
};

/// Serves clients, each on a thread of its own, until `stop_fd` is readable. Then it informs the connected clients, and
/// ends.
/// Returns  ok; or why it cannot serve
[[nodiscard]] Status run_server(const ServerOptions& options, int stop_fd);

}  // namespace rdmacomm::copying
