#include "rdma_copy/copy_flags.h"

#include <gflags/gflags.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "rdma_copy/remote_path.h"
#include "support/program.h"
#include "support/sizes.h"

DEFINE_bool(serve, false, "wait for copies, until SIGTERM, instead of making one");
DEFINE_string(root, "", "with --serve: the directory that clients read and write in; nothing leads out of it");
DEFINE_string(listen, "127.0.0.1",
              "with --serve: the address to listen at; 0.0.0.0 or :: is every one of this machine");
DEFINE_bool(recursive, false, "-r: directories with all that is in them; symbolic links as links");
DEFINE_bool(
    archive, false,
    "-a: keep times and modes, without set-user-ID and set-group-ID, as owners are not kept; symbolic links as links");
DEFINE_bool(checksum, true, "compare what was written with what was read, file by file (XXH3)");
DEFINE_bool(no_checksum, false, "do not");
DEFINE_bool(resume, false, "go on with files that an earlier copy has begun, and leave out what is there already");
DEFINE_bool(delta, false, "of files that are there, send only blocks that differ");
DEFINE_bool(dry_run, false, "-n: say what would be copied, and change nothing");
DEFINE_string(bwlimit, "", "bytes a second to send at most; K, M and G are powers of 1024; 0: no limit");
DEFINE_double(timeout, 60,
              "seconds after which a copy ends if no data move and neither side is at work, 5 or more; 0: never");
DEFINE_bool(fsync, false, "files and directories are on the disk before they count as copied");
DEFINE_bool(json, false, "one line at the end, on standard output, for programs");
DEFINE_bool(no_progress, false, "show no progress, also where standard error is a terminal");
DEFINE_bool(verbose, false, "-v: the name of each thing that is copied, on standard output");
DECLARE_int32(port);
DECLARE_string(polling);

namespace rdmacomm::copying {
namespace {

Error bad_flag(const std::string& flag, const std::string& why) {
  return make_error(Errc::kInvalidArgument, "--" + flag + ": " + why);
}

bool given(const char* flag) {
  return !gflags::GetCommandLineFlagInfoOrDie(flag).is_default;
}

unsigned current_mask() {
  // umask(2) has no other way to read it. The program computes modes itself, so the process needs no mask.
  return static_cast<unsigned>(::umask(0));
}

Result<std::pair<programs::ConnectionFlags, programs::ModeFlags>> read_connection(programs::Role role) {
  auto connection = programs::read_connection_flags(role);
  if (!connection) return connection.error();
  const auto modes = programs::read_mode_flags(programs::OwnThread::kAlways);
  if (!modes) return modes.error();
  return std::pair(std::move(*connection), *modes);
}

Result<CopyOptions> read_copy_options() {
  CopyOptions options{.recursive = FLAGS_recursive,
                      .archive = FLAGS_archive,
                      .checksum = FLAGS_checksum && !FLAGS_no_checksum,
                      .resume = FLAGS_resume,
                      .delta = FLAGS_delta,
                      .dry_run = FLAGS_dry_run,
                      .sync = FLAGS_fsync};
  if (FLAGS_bwlimit.empty() || FLAGS_bwlimit == "0") return options;
  const auto limit = programs::parse_size(FLAGS_bwlimit);
  if (!limit) return bad_flag("bwlimit", limit.error().context);
  options.bytes_per_second = *limit;
  return options;
}

/// Both peers report once a second that they are at work, so a timeout must be longer.
Result<std::chrono::milliseconds> read_timeout() {
  constexpr double kMin = 5;
  constexpr double kMax = 7 * 24 * 3600;
  if (FLAGS_timeout != 0 && !(FLAGS_timeout >= kMin && FLAGS_timeout <= kMax)) {
    return bad_flag("timeout", "5 to 604800 seconds, or 0 for none");
  }
  return std::chrono::milliseconds(static_cast<std::int64_t>(FLAGS_timeout * 1000));
}

Error bad_word(const std::string& word, const std::string& why) {
  return make_error(Errc::kInvalidArgument, '"' + escaped(word.substr(0, 200)) + "\" " + why);
}

programs::Help help() {
  return {
      .usage =
          "rdma_copy [OPTION...] SRC... HOST[:PORT]:DST\n"
          "       rdma_copy [OPTION...] HOST[:PORT]:SRC... DST\n"
          "       rdma_copy --serve --root=DIR [--listen=ADDRESS] [--port=N]",
      .purpose =
          "Copies files and trees to an rdma_copy --serve on another host, or from there. Paths on the server are\n"
          "relative to its root. What is there already stays until what comes is whole, and then gives place at once.",
      .groups = {{"What is copied, and how",
                  {{"recursive", ""},
                   {"archive", ""},
                   {"resume", ""},
                   {"delta", ""},
                   {"checksum", ""},
                   {"no_checksum", ""},
                   {"dry_run", ""},
                   {"bwlimit", "BYTES"},
                   {"fsync", ""}}},
                 {"The server", {{"serve", ""}, {"root", "DIR"}, {"listen", "ADDRESS"}}},
                 {"What it says", {{"verbose", ""}, {"json", ""}, {"no_progress", ""}}},
                 {"The connection",
                  {{"port", "N", "TCP port of the server; 0, with --serve: any free one"},
                   {"connect_timeout", "SECONDS"},
                   {"silent_peer_after", "SECONDS"},
                   {"timeout", "SECONDS"},
                   {"connector", "KIND"},
                   {"polling", "busy|channel|epoll|adaptive"}}},
                 programs::device_help()},
      .closing =
          "Exit status: 0 when everything was copied; 1, with a line on standard error for each thing that was not, "
          "when not.\n\n"
          "Examples:\n"
          "  rdma_copy --serve --root=/data --listen=0.0.0.0                on node2\n"
          "  rdma_copy -ra tree node2:                                      on node1: to /data/tree\n"
          "  rdma_copy node2:tree/file .                                    and back\n"
          "  rdma_copy -ra tree/ node2:backup                               what is in it, to /data/backup\n"
          "  rdma_copy -ra --resume tree/ node2:backup                      what is missing still",
      .letters = {{'r', "--recursive"}, {'a', "--archive"}, {'n', "--dry-run"}, {'v', "--verbose"}},
  };
}

}  // namespace

std::optional<int> start(int argc, char** argv, std::vector<std::string>& words) {
  // Several threads share the cores here, so by default none of them spins.
  gflags::SetCommandLineOptionWithMode("polling", "channel", gflags::SET_FLAGS_DEFAULT);
  return programs::start(argc, argv, help(), &words);
}

bool serve_wanted() {
  return FLAGS_serve;
}

Result<ServerOptions> read_server_options(const std::vector<std::string>& words) {
  if (!words.empty()) return bad_word(words.front(), "is unexpected: --serve waits for others; see --help");
  if (FLAGS_root.empty()) return bad_flag("root", "is missing: --serve --root=DIR, see --help");
  for (const char* flag : {"recursive", "archive", "resume", "delta", "dry_run", "fsync", "json", "bwlimit"}) {
    if (given(flag)) return bad_flag(flag, "is an option of the client, not of --serve");
  }
  auto flags = read_connection(programs::Role::kServer);
  if (!flags) return flags.error();
  flags->first.session.address.host = FLAGS_listen;
  const auto timeout = read_timeout();
  if (!timeout) return timeout.error();
  return ServerOptions{.connection = std::move(flags->first),
                       .modes = flags->second,
                       .root = FLAGS_root,
                       .mask = current_mask(),
                       .timeout = *timeout};
}

Result<ClientOptions> read_client_options(const std::vector<std::string>& words) {
  for (const char* flag : {"root", "listen"}) {
    if (given(flag)) return bad_flag(flag, "is an option of --serve");
  }
  if (words.size() < 2) {
    return make_error(Errc::kInvalidArgument,
                      "two names at least: rdma_copy SRC... HOST:DST, or HOST:SRC... DST; see --help");
  }
  auto flags = read_connection(programs::Role::kClient);
  if (!flags) return flags.error();
  const auto copy = read_copy_options();
  if (!copy) return copy.error();
  const auto timeout = read_timeout();
  if (!timeout) return timeout.error();
  ClientOptions options{
      .connection = std::move(flags->first), .modes = flags->second, .copy = *copy, .timeout = *timeout};
  std::optional<HostPort> server;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool last = i + 1 == words.size();
    auto remote = parse_remote_path(words[i]);
    if (!remote) return bad_word(words[i], "is no HOST[:PORT]:PATH: " + remote.error().context);
    if (i == 0) options.direction = *remote ? Direction::kPull : Direction::kPush;
    const bool due = (options.direction == Direction::kPush) == last;
    if (remote->has_value() != due) {
      return bad_word(words[i],
                      due ? "is no HOST:PATH: either all sources are on a server, or the destination is; see --help"
                          : "is on a server: either all sources are, or the destination is; see --help");
    }
    if (*remote) {
      const HostPort host{.host = (*remote)->host.host,
                          .port = (*remote)->host.port.value_or(static_cast<std::uint16_t>(FLAGS_port))};
      if (server && server->to_text() != host.to_text())
        return bad_word(words[i], "is on another server than those before");
      server = host;
    }
    if (!*remote && words[i].empty()) return bad_word(words[i], "is no name: write . for the working directory");
    if (*remote && (*remote)->path.size() > Job::kMaxPath) {
      return bad_word(words[i], "is too long: a path has " + std::to_string(Job::kMaxPath) + " bytes at most");
    }
    std::string path = *remote ? std::move((*remote)->path) : words[i];
    if (last) {
      options.destination = std::move(path);
    } else {
      options.sources.push_back(std::move(path));
    }
  }
  options.connection.session.address = *server;
  options.mask = current_mask();
  return options;
}

ReportFlags read_report_flags() {
  return {.names = (FLAGS_verbose || FLAGS_dry_run) && !FLAGS_json,
          .progress = !FLAGS_no_progress && ::isatty(STDERR_FILENO) == 1,
          .json = FLAGS_json};
}

}  // namespace rdmacomm::copying
