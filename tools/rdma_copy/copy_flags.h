// copy_flags.h - the flags of rdma_copy.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rdma_copy/client.h"
#include "rdma_copy/server.h"
#include "rdmacomm/result.h"

namespace rdmacomm::copying {

/// programs::start() with the flags of this program, and with its own defaults for other flags.
[[nodiscard]] std::optional<int> start(int argc, char** argv, std::vector<std::string>& words);
[[nodiscard]] bool serve_wanted();
/// kInvalidArgument: the context names the flag, or the word.
[[nodiscard]] Result<ServerOptions> read_server_options(const std::vector<std::string>& words);
/// kInvalidArgument: the context names the flag, or the word.
[[nodiscard]] Result<ClientOptions> read_client_options(const std::vector<std::string>& words);

/// The flags for output. A value.
struct ReportFlags {
  bool names = false;
  bool progress = false;
  bool json = false;
};
[[nodiscard]] ReportFlags read_report_flags();

}  // namespace rdmacomm::copying
