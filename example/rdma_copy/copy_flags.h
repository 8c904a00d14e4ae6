// copy_flags.h - the flags of rdma_copy.
#pragma once

#include <string>
#include <vector>

#include "rdma_copy/client.h"
#include "rdma_copy/server.h"
#include "rdmacomm/base/result.h"
#include "support/program.h"

namespace rdmacomm::copying {

[[nodiscard]] programs::Help help();
/// "-ra" is "--recursive", "--archive", and so on; flags get the defaults that they have here.
[[nodiscard]] std::vector<std::string> expand_short_flags(int argc, char** argv);
[[nodiscard]] bool serve_wanted();
/// kInvalidArgument: the context names the flag, or the word.
[[nodiscard]] Result<ServerOptions> read_server_options(const std::vector<std::string>& words);
/// kInvalidArgument: the context names the flag, or the word.
[[nodiscard]] Result<ClientOptions> read_client_options(const std::vector<std::string>& words);

/// What is said, and how. A value.
struct ReportFlags {
  bool names = false;
  bool progress = false;
  bool json = false;
};
[[nodiscard]] ReportFlags read_report_flags();

}  // namespace rdmacomm::copying
