#include "rdma_copy/copy_flags.h"

#include <gflags/gflags.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "rdma_copy/remote_path.h"
#include "support/program.h"
#include "support/sizes.h"

DEFINE_bool(serve, false, "run as a server: wait for clients until SIGTERM");
DEFINE_string(root, "",
              "with --serve: directory that clients can read and write. They cannot access files outside of it");
DEFINE_string(listen, "127.0.0.1",
              "with --serve: address to listen at. 0.0.0.0 and :: stand for every address of this host");
DEFINE_bool(recursive, false, "-r: copy directories with all their contents; copy symbolic links as links");
DEFINE_bool(archive, false,
            "-a: keep modification times and modes; copy symbolic links as links. Owners are not kept, and therefore "
            "set-user-ID and set-group-ID are removed");
DEFINE_bool(checksum, true, "compare the checksum (XXH3) of each written file with that of the data that was read");
DEFINE_bool(no_checksum, false, "do not compare checksums");
DEFINE_bool(resume, false,
            "continue files that an earlier copy has begun, and do not send data that the destination already has");
DEFINE_bool(delta, false, "if a file already exists at the destination, send only its blocks that differ");
DEFINE_bool(dry_run, false, "-n: print what would be copied, and change nothing");
DEFINE_string(bwlimit, "", "send at most BYTES per second; K, M and G are powers of 1024. 0: no limit");
DEFINE_double(
    timeout, 60,
    "5 to 604800: number of seconds after which a copy fails if no data moves and neither peer is working. 0: "
    "no limit");
DEFINE_bool(fsync, false, "write each file and directory to the disk (fsync) before it counts as copied");
DEFINE_bool(json, false, "print the result as one line of JSON on standard output");
DEFINE_bool(no_progress, false, "show no progress, even if standard error is a terminal");
DEFINE_bool(verbose, false, "-v: print the name of each copied file, directory and link on standard output");
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
    return bad_flag("timeout", "possible are 5 to 604800 seconds, and 0 for no limit");
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
          "Copies files and directory trees to a host on which rdma_copy --serve runs, or from such a host. Paths on "
          "the "
          "server are relative to its root directory. An existing file stays unchanged until its new version is "
          "complete; the new version then replaces it in one step.",
      .groups = {{"Copying",
                  {{"recursive", ""},
                   {"archive", ""},
                   {"resume", ""},
                   {"delta", ""},
                   {"checksum", ""},
                   {"no_checksum", ""},
                   {"dry_run", ""},
                   {"bwlimit", "BYTES"},
                   {"fsync", ""}}},
                 {"Server", {{"serve", ""}, {"root", "DIR"}, {"listen", "ADDRESS"}}},
                 {"Output", {{"verbose", ""}, {"json", ""}, {"no_progress", ""}}},
                 {"Connection",
                  {{"port", "N", "TCP port of the server. 0 (with --serve only): any free port"},
                   {"connect_timeout", "SECONDS"},
                   {"silent_peer_after", "SECONDS"},
                   {"timeout", "SECONDS"},
                   {"connector", "KIND"},
                   {"polling", "busy|channel|epoll|adaptive"}}},
                 programs::device_help()},
      .closing =
          "Exit status: 0 if everything was copied; otherwise 1, with one line on standard error for each file, "
          "directory or link that was not copied.\n\n"
          "Examples, the first on node2, the others on node1:\n"
          "  rdma_copy --serve --root=/data --listen=0.0.0.0\n"
          "  rdma_copy -ra tree node2:                    # tree, to /data/tree\n"
          "  rdma_copy node2:tree/file .                  # one file back\n"
          "  rdma_copy -ra tree/ node2:backup             # its contents, to /data/backup\n"
          "  rdma_copy -ra --resume tree/ node2:backup    # continues an interrupted copy",
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
  if (!words.empty()) return bad_word(words.front(), "is unexpected: --serve takes no paths; see --help");
  if (FLAGS_root.empty()) return bad_flag("root", "is missing: give --serve --root=DIR; see --help");
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
                      "at least two paths are needed: rdma_copy SRC... HOST:DST, or HOST:SRC... DST; see --help");
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
    if (!remote) return bad_word(words[i], "is not HOST[:PORT]:PATH: " + remote.error().context);
    if (i == 0) options.direction = *remote ? Direction::kPull : Direction::kPush;
    const bool due = (options.direction == Direction::kPush) == last;
    if (remote->has_value() != due) {
      return bad_word(words[i],
                      due ? "is not HOST:PATH: either all sources are on a server, or the destination is; see --help"
                          : "is on a server: either all sources are, or the destination is; see --help");
    }
    if (*remote) {
      const HostPort host{.host = (*remote)->host.host,
                          .port = (*remote)->host.port.value_or(static_cast<std::uint16_t>(FLAGS_port))};
      if (server && server->to_text() != host.to_text())
        return bad_word(words[i], "is on another server than the paths before it");
      server = host;
    }
    if (!*remote && words[i].empty()) return bad_word(words[i], "is not a name: write . for the current directory");
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
