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

/// The flags that both programs have. A value.
struct PipeFlags {
  programs::ConnectionFlags connection = {};
  programs::ModeFlags modes = {};
  OnFailure on_failure = OnFailure::kStop;
  bool progress = false;  ///< shown on standard error
  bool stats = false;
  bool verbose = false;
};
/// kInvalidArgument: the context names the flag.
[[nodiscard]] Result<PipeFlags> read_pipe_flags(programs::Role role);
/// The flags of rdma_send: --block, --depth, --no-checksum, --size.
[[nodiscard]] Result<Terms> read_terms();
/// HOST[:PORT] each; without a port, `port`.
[[nodiscard]] Result<std::vector<HostPort>> read_receivers(const std::vector<std::string>& words, std::uint16_t port);
/// Splits "a,b" into two words.
[[nodiscard]] std::vector<std::string> split_list(std::string_view text);

/// Adds the parts of --help that both programs have: the flag groups after their own, and -v.
/// port  the description of --port for this program
void append_common_help(programs::Help& help, const char* port);
/// programs::start() with the settings of these two programs: some flags have other defaults.
[[nodiscard]] std::optional<int> start(int argc, char** argv, const programs::Help& help,
                                       std::vector<std::string>& words);

}  // namespace rdmacomm::pipes
