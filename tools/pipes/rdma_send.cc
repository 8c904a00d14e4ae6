// rdma_send - sends standard input to rdma_recv on other hosts, which writes it to standard output. See --help.
#include "pipes/sender.h"

namespace rdmacomm::pipes {
namespace {

programs::Help help() {
  programs::Help help{
      .usage = "rdma_send HOST[:PORT]... [OPTION...] < FILE",
      .purpose =
          "Sends its standard input to each HOST, where rdma_recv writes the data to its standard output. The input is "
          "read once into registered memory, and sent from there to all receivers. It ends with exit status 0 if every "
          "receiver has written all data, and the data was equal to the input. Sender and receivers can be started in "
          "any order, if the receivers start within --connect-timeout.",
      .groups = {{"Data",
                  {{"block", "BYTES"},
                   {"depth", "N"},
                   {"no_checksum", ""},
                   {"on_failure", "stop|continue"},
                   {"size", "BYTES"}}}},
      .closing =
          "Exit status: 0 if every receiver has all data; otherwise 1, with one line on standard error that gives the "
          "reason. If a receiver is lost or cannot write, the sender ends within a second, unless it has other "
          "receivers and --on-failure=continue.\n\n"
          "Examples:\n"
          "  rdma_recv > copy                                   # on node2\n"
          "  rdma_send node2 < file                             # on node1\n"
          "  rdma_recv | tar x                                  # on node2, node3, node4\n"
          "  tar c tree | rdma_send node2 node3 node4 --stats   # on node1",
  };
  append_common_help(help, "1 to 65535: TCP port of each HOST that is given without a port");
  return help;
}

Result<SenderOptions> read_options(const std::vector<std::string>& words) {
  if (words.empty())
    return make_error(Errc::kInvalidArgument, "no receiver is given: rdma_send HOST[:PORT]...; see --help");
  auto flags = read_pipe_flags(programs::Role::kClient);
  if (!flags) return flags.error();
  const auto terms = read_terms();
  if (!terms) return terms.error();
  auto receivers = read_receivers(words, flags->connection.session.address.port);
  if (!receivers) return receivers.error();
  flags->connection.session.address = receivers->front();
  return SenderOptions{.flags = std::move(*flags), .terms = *terms, .receivers = std::move(*receivers)};
}

}  // namespace
}  // namespace rdmacomm::pipes

int main(int argc, char** argv) {
  using namespace rdmacomm;
  std::vector<std::string> words;
  if (const auto ended = pipes::start(argc, argv, pipes::help(), words)) return *ended;
  const auto options = pipes::read_options(words);
  return programs::exit_status(options ? pipes::run_sender(*options) : options.status());
}
