// sender.h - the program rdma_send.
#pragma once

#include <vector>

#include "pipes/pipe_flags.h"
#include "pipes/terms.h"
#include "rdmacomm/result.h"

namespace rdmacomm::pipes {

struct SenderOptions {
  PipeFlags flags = {};
  Terms terms = {};
  std::vector<HostPort> receivers = {};
  int input_fd = 0;
};

/// Sends standard input to all receivers. Returns  ok: each of them has written all of it, with the same size and
/// checksum
[[nodiscard]] Status run_sender(const SenderOptions& options);

}  // namespace rdmacomm::pipes
