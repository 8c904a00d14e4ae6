// receiver.h - what rdma_recv does.
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
  /// A sender that has sent nothing for so long gives its place to one that waits for it.
  std::chrono::milliseconds rest{1000};
  bool output = true;                  ///< write to standard output
  bool sync = false;                   ///< and to the disk
  std::vector<HostPort> forward = {};  ///< and pass it on to these
  int output_fd = 1;
  std::function<void(std::uint16_t port)> listening = {};  ///< called once a sender can connect
};

/// Waits for one sender, and writes what it sends. One that goes, breaks the rules, or gives way to another one before
/// it has sent anything is none: the next one is waited for. Others wait for its place until its first byte has come,
/// and are refused then. Those that it passes on to are connected when the first byte has come. Returns  ok: all has
/// come, is written and passed on, and is the same
[[nodiscard]] Status run_receiver(const ReceiverOptions& options);

}  // namespace rdmacomm::pipes
