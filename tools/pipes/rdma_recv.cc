// rdma_recv - writes the data of rdma_send to standard output, and passes it on to other receivers. See --help.
#include <gflags/gflags.h>

#include "pipes/receiver.h"
#include "support/listen_flag.h"
#include "support/program.h"

DEFINE_double(timeout, 0, "seconds to wait for a sender's first byte, or the end of its empty input; 0: for ever");
DEFINE_string(
    forward, "",
    "HOST[:PORT],...: pass everything on to the rdma_recv there, from the memory where it has come, while it comes");
DEFINE_bool(no_output, false, "with --forward: write nothing here");
DEFINE_bool(fsync, false, "what was written is on the disk before the sender hears that it is");

namespace rdmacomm::pipes {
namespace {

programs::Help help() {
  programs::Help help{
      .usage = "rdma_recv [-p PORT] [OPTION...] > FILE",
      .purpose =
          "Waits for one rdma_send, and writes to its standard output what that reads from its standard input. It "
          "ends\n"
          "with 0 when everything has come, is written, and is what was sent. With --forward it passes everything on,\n"
          "too, and speaks for those behind it: the sender hears that all is well when it is well with all of them.",
      .groups = {{"What becomes of it",
                  {{"forward", "HOST[:PORT],..."}, {"no_output", ""}, {"fsync", ""}, {"on_failure", "stop|continue"}}},
                 {"Who may send",
                  {{"timeout", "SECONDS"},
                   {"listen", "ADDRESS",
                    "the address to listen at; without it: every one of this machine. Nobody is asked for a password: "
                    "whoever "
                    "reaches the port can send"}}}},
      .closing =
          "Exit status: 0 when all is well; 1, with one line on standard error that says why, when not: the sender is\n"
          "lost or gives up, whoever reads standard output goes, the disk is full, a receiver behind is lost. What "
          "was\n"
          "written by then stays.\n\n"
          "Examples:\n"
          "  rdma_recv -p 2021 | tar x\n"
          "  rdma_recv --forward=node3 > copy                       on node2: for itself, and on to node3\n"
          "  rdma_recv --forward=node3,node4 --no-output            only on",
  };
  append_common_help(help, "TCP port to listen at; 0: any free one");
  return help;
}

Result<ReceiverOptions> read_options(const std::vector<std::string>& words) {
  if (!words.empty()) {
    return make_error(Errc::kInvalidArgument,
                      "unexpected argument \"" + words.front() + "\"; options begin with --, see --help");
  }
  auto flags = read_pipe_flags(programs::Role::kServer);
  if (!flags) return flags.error();
  if (Status listen = programs::apply_listen_flag(flags->connection); !listen.ok()) return listen.error();
  constexpr double kMaxSeconds = 1e6;
  if (!(FLAGS_timeout >= 0 && FLAGS_timeout <= kMaxSeconds)) {
    return make_error(Errc::kInvalidArgument,
                      "--timeout=" + programs::number_given(FLAGS_timeout) + ": possible are 0 to 1000000 seconds");
  }
  ReceiverOptions options{.flags = std::move(*flags), .output = !FLAGS_no_output, .sync = FLAGS_fsync};
  if (FLAGS_timeout > 0) options.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(FLAGS_timeout * 1000));
  if (!FLAGS_forward.empty()) {
    auto forward = read_receivers(split_list(FLAGS_forward), kDefaultPort);
    if (!forward) return make_error(forward.code(), "--forward: " + forward.error().context);
    options.forward = std::move(*forward);
  }
  if (!options.output && options.forward.empty()) {
    return make_error(Errc::kInvalidArgument, "--no-output: there is no --forward, so nothing would become of it");
  }
  return options;
}

}  // namespace
}  // namespace rdmacomm::pipes

int main(int argc, char** argv) {
  using namespace rdmacomm;
  std::vector<std::string> words;
  if (const auto ended = pipes::start(argc, argv, pipes::help(), words)) return *ended;
  const auto options = pipes::read_options(words);
  return programs::exit_status(options ? pipes::run_receiver(*options) : options.status());
}
