// rdma_recv - writes the data of rdma_send to standard output, and passes it on to other receivers. See --help.
#include <gflags/gflags.h>

#include "pipes/receiver.h"
#include "support/listen_flag.h"
#include "support/program.h"

DEFINE_double(timeout, 0,
              "seconds to wait for the first byte of a sender, or for the end of an empty input. 0: no limit");
DEFINE_string(forward, "",
              "HOST[:PORT],...: send the data on to rdma_recv on these hosts while it arrives, from the memory that it "
              "arrived in");
DEFINE_bool(no_output, false, "with --forward: do not write the data to standard output");
DEFINE_bool(fsync, false, "write the data to the disk (fsync) before the sender is told that it is written");

namespace rdmacomm::pipes {
namespace {

programs::Help help() {
  programs::Help help{
      .usage = "rdma_recv [-p PORT] [OPTION...] > FILE",
      .purpose =
          "Waits for one rdma_send, and writes the data that rdma_send reads from its standard input to standard "
          "output. It ends with exit status 0 if all data has arrived, is written, and is equal to the sent data. With "
          "--forward it also sends the data on to further receivers; the sender then gets success only if all of them "
          "have succeeded.",
      .groups = {{"Data",
                  {{"forward", "HOST[:PORT],..."}, {"no_output", ""}, {"fsync", ""}, {"on_failure", "stop|continue"}}},
                 {"Sender",
                  {{"timeout", "SECONDS"},
                   {"listen", "ADDRESS",
                    "address to listen at. Without it: every address of this host. Senders need no password: every "
                    "sender that can reach the port can send"}}}},
      .closing =
          "Exit status: 0 on success; 1 on failure, with one line on standard error that gives the reason. It fails if "
          "the sender is lost or gives up, if the process that reads standard output ends, if the disk is full, or if "
          "a further receiver is lost. Data that is already written stays.\n\n"
          "Examples:\n"
          "  rdma_recv -p 2021 | tar x\n"
          "  rdma_recv --forward=node3 > copy               # keeps a copy and sends it on\n"
          "  rdma_recv --forward=node3,node4 --no-output    # only sends it on",
  };
  append_common_help(help, "TCP port to listen at. 0: any free port");
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
    return make_error(Errc::kInvalidArgument,
                      "--no-output: works only with --forward; without it the data would be lost");
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
