// rdma_send - sends standard input to rdma_recv on other hosts, which writes it to standard output. See --help.
#include "pipes/sender.h"

namespace rdmacomm::pipes {
namespace {

programs::Help help() {
  programs::Help help{
      .usage = "rdma_send HOST[:PORT]... [OPTION...] < FILE",
      .purpose =
          "Sends its standard input to each HOST, where rdma_recv writes it to its standard output. What is read goes\n"
          "once into registered memory, and from there to all of them. It ends with 0 when each of them has written\n"
          "everything, and has found that it is what was read. Who starts first does not matter, within\n"
          "--connect-timeout.",
      .groups = {{"What is sent",
                  {{"block", "BYTES"},
                   {"depth", "N"},
                   {"no_checksum", ""},
                   {"on_failure", "stop|continue"},
                   {"size", "BYTES"}}}},
      .closing =
          "Exit status: 0 when every receiver has everything; 1, with one line on standard error that says why, when "
          "not.\n"
          "A receiver that is lost, or cannot write, ends the sender, too, within a second.\n\n"
          "Examples:\n"
          "  rdma_recv > copy                                       on node2\n"
          "  rdma_send node2 < file                                 on node1\n"
          "  tar c tree | rdma_send node2 node3 node4 --stats       to three, each with rdma_recv | tar x",
  };
  append_common_help(help, "1 to 65535: TCP port of receivers that are named without one");
  return help;
}

Result<SenderOptions> read_options(const std::vector<std::string>& words) {
  if (words.empty()) return make_error(Errc::kInvalidArgument, "no receiver: rdma_send HOST[:PORT]..., see --help");
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
