// receiver.h - the program rdma_recv.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "pipes/pipe_flags.h"
#include "rdmacomm/result.h"

namespace rdmacomm::pipes {

struct ReceiverOptions {
  PipeFlags flags = {};
  std::optional<std::chrono::milliseconds> timeout = {};  ///< to wait for a sender's first byte; empty: for ever
  /// A sender that has sent nothing for this long gives its place to a waiting one.
  std::chrono::milliseconds rest{1000};
  bool output = true;                  ///< write to standard output
  bool sync = false;                   ///< flush the output to the disk
  std::vector<HostPort> forward = {};  ///< pass the data on to these receivers
  int output_fd = 1;
  std::function<void(std::uint16_t port)> listening = {};  ///< called once a sender can connect
};

/// Waits for one sender, and writes its data. A sender does not count if, before its first byte, it disconnects, breaks
/// the protocol, or gives way to another one; then the next one is awaited. Other senders wait for its place until its
/// first byte has arrived, and are then refused. The receivers in `forward` are connected when the first byte has
/// arrived. Returns  ok: all data has arrived, is written and passed on, and has the right size and checksum
[[nodiscard]] Status run_receiver(const ReceiverOptions& options);

}  // namespace rdmacomm::pipes
