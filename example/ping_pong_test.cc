// ping_pong_test - checks that RDMA works between two processes: every verb once with verified payload, then a timed
// ping-pong. See --help.
#include <gflags/gflags.h>

#include <iostream>

#include "ping_pong/client.h"
#include "ping_pong/server.h"
#include "support/child_process.h"
#include "support/connection_flags.h"
#include "support/listen_flag.h"
#include "support/listening_text.h"
#include "support/mode_flags.h"
#include "support/program.h"
#include "support/sizes.h"

DEFINE_string(size, "64", "1 to 1G: bytes of each message; K, M and G are powers of 1024");
DEFINE_int32(iterations, 1000, "1 to 10000000: number of round trips whose time is measured");

namespace rdmacomm::ping_pong {
namespace {

programs::Help help() {
  programs::Help help{
      .usage =
          "ping_pong_test [--role=both] [OPTION...]\n"
          "       ping_pong_test --role=server [--port=N] [--listen=ADDRESS]\n"
          "       ping_pong_test --role=client --server=HOST [--port=N] [OPTION...]",
      .purpose =
          "Connects two processes, on one host or two, uses every RDMA verb once, checks each byte that arrives, and "
          "measures the time of a ping-pong with SEND. Prints the device, port, GID, MTU and queue pairs that each "
          "process uses.\n"
          "The options of the test are given to the client only. The server uses the values of the client, and ends "
          "when the client's run ends. If all places of a server are taken, a client that is idle for one second gives "
          "its place to a client that waits. For large messages this time is 200 ns for each byte, at most 10 s.",
      .groups = {{"Test (client)", {{"size", "BYTES"}, {"iterations", "N"}}}, programs::mode_help()},
      .closing = "Exit status: 0 on success; 1 on failure, with one line on standard error that gives the reason.",
  };
  for (auto& group : programs::connection_help(programs::HelpFlag{"listen", "ADDRESS"}))
    help.groups.push_back(std::move(group));
  return help;
}

struct Options {
  programs::ConnectionFlags connection = {};
  Terms terms = {};
  programs::ModeFlags modes = {};
};

Result<Options> read_options() {
  Options options;
  auto connection = programs::read_connection_flags();
  if (!connection) return connection.error();
  options.connection = std::move(*connection);
  if (Status listen = programs::apply_listen_flag(options.connection); !listen.ok()) return listen.error();
  const auto size = programs::parse_size(FLAGS_size);
  if (!size) return make_error(size.code(), "--size: " + size.error().context);
  if (FLAGS_iterations < 1) {
    return make_error(Errc::kInvalidArgument, "--iterations=" + std::to_string(FLAGS_iterations) +
                                                  ": possible are 1 to " + std::to_string(Terms::kMaxIterations));
  }
  options.terms = {.size = *size, .iterations = static_cast<std::uint32_t>(FLAGS_iterations)};
  const auto modes = programs::read_mode_flags();
  if (!modes) return modes.error();
  options.modes = *modes;
  if (Status valid = options.terms.validate(); !valid.ok()) return valid.error();
  return options;
}

void print_port(std::uint16_t port) {
  std::cout << programs::listening_text(programs::listen_address(), port) << std::endl;
}

/// Runs in the server process. Once it listens, the client prints the outcome for both: the server sends it the reason
/// if it gives up.
int be_the_server(const Options& options, const std::function<void(std::uint16_t)>& listening) {
  bool listens = false;
  const Status outcome =
      run_server({.connection = options.connection, .modes = options.modes, .listening = [&](std::uint16_t port) {
                    listens = true;
                    listening(port);
                  }});
  if (listens) return outcome.ok() ? 0 : 1;
  return programs::exit_status(outcome);
}

/// Runs a server process, and the client in this one.
int run_both(Options options) {
  const auto server = programs::ServerProcess::start(
      [&](const auto& listening) { return be_the_server(options, listening); }, std::chrono::seconds(30));
  if (!server) return server.code() == Errc::kPeerLost ? 1 : programs::exit_status(server.error());
  options.connection.session.address.port = (*server)->port();
  const int status = programs::exit_status(run_client(options.connection, options.terms, options.modes));
  if (status != 0) return status;
  return programs::exit_status((*server)->wait(std::chrono::seconds(10)));
}

int run() {
  auto options = read_options();
  if (!options) return programs::exit_status(options.error());
  switch (options->connection.role) {
    case programs::Role::kServer:
      return programs::exit_status(
          run_server({.connection = options->connection, .modes = options->modes, .listening = print_port}));
    case programs::Role::kClient:
      return programs::exit_status(run_client(options->connection, options->terms, options->modes));
    case programs::Role::kBoth: return run_both(std::move(*options));
  }
  return 1;
}

}  // namespace
}  // namespace rdmacomm::ping_pong

int main(int argc, char** argv) {
  if (const auto ended = rdmacomm::programs::start(argc, argv, rdmacomm::ping_pong::help())) return *ended;
  return rdmacomm::ping_pong::run();
}
