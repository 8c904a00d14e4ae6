#include "pipes/pipe_flags.h"

#include <gflags/gflags.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "base/printable.h"
#include "connector/host_text.h"
#include "support/sizes.h"

DEFINE_int32(p, 0, "--port");
DEFINE_string(block, "512K",
              "bytes of each block, 4K to 64M (K and M are powers of 1024); the receivers use the same value");
DEFINE_int32(depth, 4, "2 to 256: number of blocks that each receiver has for incoming data");
DEFINE_bool(no_checksum, false, "do not compare the checksum of the received data with that of the input");
DEFINE_string(
    size, "",
    "expected number of bytes, for the progress display; K, M and G are powers of 1024. Not needed if standard "
    "input is a file");
DEFINE_string(on_failure, "stop",
              "what happens to the other receivers if one is lost or cannot write. stop: all of them end; continue: "
              "they continue, and the exit status at the end is 1");
DEFINE_bool(no_progress, false, "show no progress, even if standard error is a terminal");
DEFINE_bool(stats, false, "print one line at the end: bytes, time, rate, processor time, checksum");
DEFINE_bool(verbose, false, "-v: print the address of each connected peer");
DECLARE_int32(port);
DECLARE_string(polling);

namespace rdmacomm::pipes {
namespace {

Error bad_flag(const std::string& flag, const std::string& why) {
  return make_error(Errc::kInvalidArgument, "--" + flag + ": " + why);
}

bool given(const char* flag) {
  return !gflags::GetCommandLineFlagInfoOrDie(flag).is_default;
}

}  // namespace

Result<PipeFlags> read_pipe_flags(programs::Role role) {
  if (given("p")) FLAGS_port = FLAGS_p;
  auto connection = programs::read_connection_flags(role);
  if (!connection) return connection.error();
  const auto modes = programs::read_mode_flags(programs::OwnThread::kAlways);
  if (!modes) return modes.error();
  PipeFlags flags{.connection = std::move(*connection), .modes = *modes};
  if (FLAGS_on_failure != "stop" && FLAGS_on_failure != "continue") {
    return bad_flag("on-failure=" + FLAGS_on_failure, "possible are stop and continue");
  }
  flags.on_failure = FLAGS_on_failure == "stop" ? OnFailure::kStop : OnFailure::kContinue;
  flags.progress = !FLAGS_no_progress && ::isatty(STDERR_FILENO) == 1;
  flags.stats = FLAGS_stats;
  flags.verbose = FLAGS_verbose;
  return flags;
}

Result<Terms> read_terms() {
  const auto block = programs::parse_size(FLAGS_block);
  if (!block) return bad_flag("block", block.error().context);
  Terms terms{.block_bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(*block, UINT32_MAX)),
              .blocks = static_cast<std::uint16_t>(std::clamp(FLAGS_depth, 0, UINT16_MAX)),
              .checksum = !FLAGS_no_checksum};
  if (const Status valid = terms.validate(); !valid.ok()) {
    return bad_flag("block=" + FLAGS_block + ", --depth=" + std::to_string(FLAGS_depth), valid.error().context);
  }
  if (FLAGS_size.empty()) return terms;
  const auto size = programs::parse_size(FLAGS_size);
  if (!size) return bad_flag("size", size.error().context);
  terms.size = *size;
  return terms;
}

Result<std::vector<HostPort>> read_receivers(const std::vector<std::string>& words, std::uint16_t port) {
  std::vector<HostPort> receivers;
  for (const std::string& word : words) {
    auto parsed = parse_host(word);
    if (!parsed) {
      return make_error(Errc::kInvalidArgument,
                        '"' + printable(word, 200) + "\" is not HOST[:PORT]: " + parsed.error().context);
    }
    receivers.push_back({.host = std::move(parsed->host), .port = parsed->port.value_or(port)});
  }
  return receivers;
}

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> words;
  for (std::size_t comma = 0; comma != std::string_view::npos;) {
    comma = text.find(',');
    words.emplace_back(text.substr(0, comma));
    if (comma != std::string_view::npos) text.remove_prefix(comma + 1);
  }
  return words;
}

void append_common_help(programs::Help& help, const char* port) {
  help.groups.push_back({"Output on standard error", {{"no_progress", ""}, {"stats", ""}, {"verbose", ""}}});
  help.groups.push_back(
      {"Connection",
       {{"port", "N", port},
        {"connect_timeout", "SECONDS",
         "number of seconds for which it tries to connect to a receiver, and for which it then waits for each "
         "answer of the receiver"},
        {"silent_peer_after", "SECONDS"},
        {"connector", "KIND"},
        {"polling", "busy|channel|epoll|adaptive"}}});
  help.groups.push_back(programs::device_help());
  help.letters = {{'v', "--verbose"}};  // instead of glog's -v, its log level, which needs a number
}

std::optional<int> start(int argc, char** argv, const programs::Help& help, std::vector<std::string>& words) {
  // Several threads share the cores here, so by default none of them spins.
  gflags::SetCommandLineOptionWithMode("polling", "channel", gflags::SET_FLAGS_DEFAULT);
  (void)std::signal(SIGPIPE, SIG_IGN);  // a write to a pipe without a reader then fails with EPIPE
  return programs::start(argc, argv, help, &words);
}

}  // namespace rdmacomm::pipes
