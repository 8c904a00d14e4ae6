// pipe_flags.h - the flags of rdma_send and rdma_recv.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pipes/outlets.h"
#include "pipes/terms.h"
#include "rdmacomm/result.h"
#include "support/connection_flags.h"
#include "support/mode_flags.h"
#include "support/program.h"

namespace rdmacomm::pipes {

/// What both have. A value.
struct PipeFlags {
  programs::ConnectionFlags connection = {};
  programs::ModeFlags modes = {};
  OnFailure on_failure = OnFailure::kStop;
  bool progress = false;  ///< shown
  bool stats = false;
  bool verbose = false;
};
/// kInvalidArgument: the context names the flag.
[[nodiscard]] Result<PipeFlags> read_pipe_flags(programs::Role role);
/// Of rdma_send: --block, --depth, --no-checksum, --size.
[[nodiscard]] Result<Terms> read_terms();
/// HOST[:PORT] each; without a port that of the flags.
[[nodiscard]] Result<std::vector<HostPort>> read_receivers(const std::vector<std::string>& words, std::uint16_t port);
/// "a,b" are two words.
[[nodiscard]] std::vector<std::string> split_list(std::string_view text);

/// What --help of both has: the groups behind those of their own, and -v.
/// port  what --port is for this one
void append_common_help(programs::Help& help, const char* port);
/// programs::start() with what is special to these two: flags with other defaults.
[[nodiscard]] std::optional<int> start(int argc, char** argv, const programs::Help& help,
                                       std::vector<std::string>& words);

}  // namespace rdmacomm::pipes
