// client.h - the client of a copy, which its user has started.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "rdma_copy/events.h"
#include "rdma_copy/messages.h"
#include "rdma_copy/watch.h"
#include "rdmacomm/result.h"
#include "support/connection_flags.h"
#include "support/mode_flags.h"

namespace rdmacomm::copying {

struct ClientOptions {
  programs::ConnectionFlags connection = {};  ///< with the server's address
  programs::ModeFlags modes = {};
  Direction direction = Direction::kPush;
  CopyOptions copy = {};
  std::vector<std::string> sources = {};
  std::string destination = {};
  unsigned mask = 022;  ///< as Destination::mask
  std::chrono::milliseconds timeout = kTimeout;
};

/// Returns  ok: everything was copied except counts.failures entries, each reported by events; or why the copy has
///          ended
[[nodiscard]] Status run_client(const ClientOptions& options, const Events& events, Counts& counts);

}  // namespace rdmacomm::copying
