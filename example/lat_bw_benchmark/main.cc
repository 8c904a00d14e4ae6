// lat_bw_benchmark - measures latency, bandwidth and message rate of every operation at every size, in comparison with
// the machine's own limits. See --help.
#include <gflags/gflags.h>

#include <cmath>
#include <iostream>

#include "lat_bw_benchmark/client.h"
#include "lat_bw_benchmark/server.h"
#include "support/child_process.h"
#include "support/connection_flags.h"
#include "support/listen_flag.h"
#include "support/listening_text.h"
#include "support/mode_flags.h"
#include "support/program.h"
#include "support/sizes.h"

DEFINE_string(ops, "all",
              "operations to measure: all, or a list of send, write, write_imm, read, fetch_add and compare_swap");
DEFINE_string(
    tests, "all",
    "tests to run: all, or a list of lat (latency, one operation at a time), bw (bandwidth, many operations at a "
    "time), bibw (bandwidth in both directions) and rate (rate of small messages)");
DEFINE_string(sizes, "1:8M",
              "message sizes: LOW:HIGH for every power of two from LOW to HIGH, or a list such as 8,4K,1M");
DEFINE_int32(iterations, 0,
             "1 to 10000000 (for latencies 1000000): number of operations for each line of the table. Without it, "
             "--duration decides");
DEFINE_double(duration, 0.1, "more than 0, up to 600: seconds for each line of the table, all rounds together");
DEFINE_int32(
    rounds, 5,
    "1 to 100: number of parts in which each line is measured. Between them the speed of this host is measured");
DEFINE_int32(queue_depth, 64, "1 to 1024: number of outstanding operations in bw, bibw and rate");
DEFINE_string(buffers, "one",
              "one: all messages use the same block of memory; roundrobin: each message uses the next block");
DEFINE_int32(inline, 0, "0 to 256: payloads of up to this number of bytes are copied into the request");
DEFINE_bool(verify, false, "compare each received byte with the sent byte; this makes all operations slower");
DEFINE_bool(inject_corruption, false, "change one byte of each payload, to check that --verify finds it");
DEFINE_string(json, "", "also write all results to this file");

namespace rdmacomm::benchmark {
namespace {

programs::Help help() {
  programs::Help help{
      .usage =
          "lat_bw_benchmark [--role=both] [OPTION...]\n"
          "       lat_bw_benchmark --role=server [--port=N] [--listen=ADDRESS]\n"
          "       lat_bw_benchmark --role=client --server=HOST [--port=N] [OPTION...]",
      .purpose =
          "Measures RDMA operations between two processes, on one host or two: latency, bandwidth and message rate at "
          "each size. At the same time it measures the caches and memcpy of this host, for comparison.\n"
          "The options of the measurement are given to the client only. The server uses the values of the client, and "
          "ends when the client's run ends.",
      .groups = {{"Measurement (client)",
                  {{"ops", "LIST"},
                   {"tests", "LIST"},
                   {"sizes", "SIZES"},
                   {"iterations", "N"},
                   {"duration", "SECONDS"},
                   {"rounds", "N"}}},
                 {"Details of the measurement (client)",
                  {{"queue_depth", "N"},
                   {"buffers", "one|roundrobin"},
                   {"inline", "BYTES"},
                   {"verify", ""},
                   {"inject_corruption", ""},
                   {"json", "FILE"}}}},
      .closing =
          "Exit status: 0 if everything was measured; otherwise 1, with one line on standard error that gives the "
          "reason."
          "\n\n"
          "Examples:\n"
          "  lat_bw_benchmark --ops=write --tests=lat,bw --sizes=8,64K,1M\n"
          "  lat_bw_benchmark --role=client --server=node7 --duration=1 --json=out.json",
  };
  help.groups.push_back(programs::mode_help());
  for (auto& group : programs::connection_help(programs::HelpFlag{"listen", "ADDRESS"}))
    help.groups.push_back(std::move(group));
  return help;
}

/// The same error, with the name of the flag.
Error of_flag(const char* flag, const Error& error) {
  return make_error(error.code, std::string("--") + flag + ": " + error.context);
}

Status not_negative(const char* flag, int value) {
  if (value >= 0) return {};
  return make_error(Errc::kInvalidArgument,
                    std::string("--") + flag + "=" + std::to_string(value) + ": must not be negative");
}

Status read_numbers(Plan& plan) {
  for (const Status& checked : {not_negative("iterations", FLAGS_iterations), not_negative("rounds", FLAGS_rounds),
                                not_negative("queue-depth", FLAGS_queue_depth), not_negative("inline", FLAGS_inline)}) {
    if (!checked.ok()) return checked;
  }
  if (!(FLAGS_duration > 0 && FLAGS_duration <= 600)) {
    return make_error(Errc::kInvalidArgument, "--duration=" + programs::number_given(FLAGS_duration) +
                                                  ": possible are more than 0, and up to 600 seconds");
  }
  const bool by_count = !gflags::GetCommandLineFlagInfoOrDie("iterations").is_default;
  if (by_count && FLAGS_iterations == 0)
    return make_error(Errc::kInvalidArgument,
                      "--iterations=0: possible are 1 to " + std::to_string(Plan::kMaxIterations));
  plan.iterations = static_cast<std::uint32_t>(FLAGS_iterations);
  plan.duration_us = by_count ? 0 : static_cast<std::uint64_t>(std::ceil(FLAGS_duration * 1e6));
  plan.rounds = static_cast<std::uint32_t>(FLAGS_rounds);
  if (by_count) plan.rounds = std::min(plan.rounds, plan.iterations);
  plan.queue_depth = static_cast<std::uint32_t>(FLAGS_queue_depth);
  plan.inline_bytes = static_cast<std::uint32_t>(FLAGS_inline);
  return {};
}

Result<Plan> read_plan() {
  Plan plan;
  auto ops = parse_ops(FLAGS_ops);
  if (!ops) return of_flag("ops", ops.error());
  auto tests = parse_tests(FLAGS_tests);
  if (!tests) return of_flag("tests", tests.error());
  auto sizes = programs::parse_sizes(FLAGS_sizes);
  if (!sizes) return of_flag("sizes", sizes.error());
  const auto buffers = parse_buffers(FLAGS_buffers);
  if (!buffers) return of_flag("buffers", buffers.error());
  plan.ops = std::move(*ops);
  plan.tests = std::move(*tests);
  plan.sizes = std::move(*sizes);
  plan.buffers = *buffers;
  plan.verify = FLAGS_verify;
  plan.corrupt = FLAGS_inject_corruption;
  if (Status numbers = read_numbers(plan); !numbers.ok()) return numbers.error();
  if (Status valid = plan.validate(); !valid.ok()) return valid.error();
  return plan;
}

void print_port(std::uint16_t port) {
  std::cout << programs::listening_text(programs::listen_address(), port) << std::endl;
}

/// Runs in the server process. Once it listens, the client prints the outcome for both: the server sends it the reason
/// if it gives up.
int be_the_server(const programs::ConnectionFlags& connection, const programs::ModeFlags& modes,
                  const std::function<void(std::uint16_t)>& listening) {
  bool listens = false;
  const Status outcome = run_server({.connection = connection, .modes = modes, .listening = [&](std::uint16_t port) {
                                       listens = true;
                                       listening(port);
                                     }});
  if (listens) return outcome.ok() ? 0 : 1;
  return programs::exit_status(outcome);
}

/// Runs a server process, and the client in this one.
int run_both(ClientOptions options) {
  const auto server = programs::ServerProcess::start(
      [&](const auto& listening) { return be_the_server(options.connection, options.modes, listening); },
      std::chrono::seconds(30));
  if (!server) return server.code() == Errc::kPeerLost ? 1 : programs::exit_status(server.error());
  options.connection.session.address.port = (*server)->port();
  const int status = programs::exit_status(run_client(options));
  if (status != 0) return status;
  return programs::exit_status((*server)->wait(std::chrono::seconds(10)));
}

int run() {
  auto connection = programs::read_connection_flags();
  if (!connection) return programs::exit_status(connection.error());
  if (Status listen = programs::apply_listen_flag(*connection); !listen.ok()) return programs::exit_status(listen);
  const auto modes = programs::read_mode_flags();
  if (!modes) return programs::exit_status(modes.error());
  if (connection->role == programs::Role::kServer) {
    return programs::exit_status(run_server({.connection = *connection, .modes = *modes, .listening = print_port}));
  }
  auto plan = read_plan();
  if (!plan) return programs::exit_status(plan.error());
  ClientOptions options{.connection = *connection, .modes = *modes, .plan = std::move(*plan), .json_path = FLAGS_json};
  if (connection->role == programs::Role::kBoth) return run_both(std::move(options));
  return programs::exit_status(run_client(std::move(options)));
}

}  // namespace
}  // namespace rdmacomm::benchmark

int main(int argc, char** argv) {
  if (const auto ended = rdmacomm::programs::start(argc, argv, rdmacomm::benchmark::help())) return *ended;
  return rdmacomm::benchmark::run();
}
