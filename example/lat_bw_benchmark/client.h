// client.h - the client of the benchmark: connects, measures each cell, reports.
#pragma once

#include <chrono>
#include <string>

#include "lat_bw_benchmark/plan.h"
#include "rdmacomm/result.h"
#include "support/connection_flags.h"
#include "support/mode_flags.h"

namespace rdmacomm::benchmark {

struct ClientOptions {
  programs::ConnectionFlags connection = {};
  programs::ModeFlags modes = {};
  Plan plan = {};
  std::string json_path = {};  ///< empty: no JSON
  /// A longer round is measured in several parts. During some parts the server cannot see the client's progress, and it
  /// considers a client to be idle after a minute without progress.
  std::chrono::nanoseconds longest_part = std::chrono::seconds(20);
};

/// Runs the plan against a server and prints the results on standard output.
/// Returns  kBeyondDeviceLimit: a message size that the device does not support; std::errc::io_error: verification
///          failed; kPeerLost: the server died; or as ClientSession::connect, RDMABuffer::allocate and the operations
[[nodiscard]] Status run_client(ClientOptions options);

}  // namespace rdmacomm::benchmark
