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

DEFINE_string(ops, "all", "what to measure: any of send, write, write_imm, read, fetch_add, compare_swap");
DEFINE_string(tests, "all", "how: any of lat (one at a time), bw (pipelined), bibw (both ways), rate (small messages)");
DEFINE_string(sizes, "1:8M", "message sizes: LOW:HIGH is every power of two in between; or a list, as in 8,4K,1M");
DEFINE_int32(iterations, 0, "how many of each; without it, --duration decides");
DEFINE_double(duration, 0.1, "seconds for each line, all rounds together");
DEFINE_int32(rounds, 5, "in how many parts each line is measured; the machine is measured in between");
DEFINE_int32(queue_depth, 64, "operations outstanding in bw, bibw and rate");
DEFINE_string(buffers, "one", "one: every message from and to the same place; roundrobin: the next block each time");
DEFINE_int32(inline, 0, "payloads up to so many bytes are copied into the request");
DEFINE_bool(verify, false, "compare what arrives with what was sent, byte by byte; slows everything down");
DEFINE_bool(inject_corruption, false, "spoil one byte of each payload, to see --verify find it");
DEFINE_string(json, "", "write everything to this file, too");

namespace rdmacomm::benchmark {
namespace {

programs::Help help() {
  programs::Help help{
      .usage =
          "lat_bw_benchmark [--role=both] [OPTION...]\n"
          "       lat_bw_benchmark --role=server [--port=N] [--listen=ADDRESS]\n"
          "       lat_bw_benchmark --role=client --server=HOST [--port=N] [OPTION...]",
      .purpose =
          "Measures the RDMA operations between two processes, on one machine or two: latency, bandwidth and message\n"
          "rate at every size, and in the same seconds what the machine's caches and memcpy do. What is measured is\n"
          "said on the client only; the server follows, and ends with its client's run.",
      .groups = {{"What is measured (client)",
                  {{"ops", "LIST"},
                   {"tests", "LIST"},
                   {"sizes", "SIZES"},
                   {"iterations", "N"},
                   {"duration", "SECONDS"},
                   {"rounds", "N"}}},
                 {"How (client)",
                  {{"queue_depth", "N"},
                   {"buffers", "one|roundrobin"},
                   {"inline", "BYTES"},
                   {"verify", ""},
                   {"inject_corruption", ""},
                   {"json", "FILE"}}}},
      .closing =
          "Exit status: 0 when everything was measured; 1, with one line on standard error that says why, when not.\n\n"
          "Examples:\n"
          "  lat_bw_benchmark --ops=write --tests=lat,bw --sizes=8,64K,1M\n"
          "  lat_bw_benchmark --role=client --server=node7 --duration=1 --json=results.json",
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
  if (by_count && FLAGS_iterations == 0) return make_error(Errc::kInvalidArgument, "--iterations=0: at least 1");
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
