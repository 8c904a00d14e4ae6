// mesh_comm_service - N nodes, each of which sends to all others. See --help.
#include <fcntl.h>
#include <gflags/gflags.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <thread>

#include "base/system_call.h"
#include "base/unique_fd.h"
#include "mesh_comm_service/cluster.h"
#include "mesh_comm_service/heat_map.h"
#include "mesh_comm_service/host_book.h"
#include "mesh_comm_service/job_environment.h"
#include "mesh_comm_service/launcher.h"
#include "mesh_comm_service/node.h"
#include "mesh_comm_service/own_place.h"
#include "mesh_comm_service/process_figures.h"
#include "mesh_comm_service/report.h"
#include "mesh_comm_service/terms.h"
#include "support/available_memory.h"
#include "support/connection_flags.h"
#include "support/descriptor_limit.h"
#include "support/listen_flag.h"
#include "support/listening_text.h"
#include "support/mode_flags.h"
#include "support/program.h"
#include "support/result_file.h"
#include "support/sizes.h"
#include "support/standard_output.h"

DEFINE_string(cluster, "", "the nodes, in the order of their ranks; --cluster h1 h2 h3 is possible, too");
DEFINE_string(hostfile, "", "file with the list of nodes, one node per line; \"h1 slots=2\" means two nodes on h1");
DEFINE_int32(rank, -1,
             "rank of this node, from 0. Without it: the rank of the only node in the list that has an address of this "
             "host");
DEFINE_int32(local, 0, "2 to 1024: run N nodes as processes of this host, instead of --cluster");
DEFINE_string(op, "write", "operation that each node uses with each other node: send, write, write_imm or read");
DEFINE_string(size, "4K", "1 to 1G: bytes of each message; K, M and G are powers of 1024");
DEFINE_double(duration, 2, "more than 0, up to 86400: seconds of traffic; not with --total");
DEFINE_string(total, "", "exact number of bytes from each node to each other node; the last message may be shorter");
DEFINE_int32(queue_depth, 0,
             "1 to 4096: number of outstanding messages to each node. 0: about 1 MiB, between 2 and 64 messages");
DEFINE_bool(verify, false,
            "fill each message with different data, and compare all bytes that arrive; this makes the traffic slower");
DEFINE_string(
    on_failure, "stop",
    "what a node does if another node is lost. stop: it prints which node is lost, and ends with exit status 1; "
    "continue: it prints which node is lost, and continues with the other nodes, and with the lost node if it comes "
    "back");
DEFINE_string(json, "", "file for all results; the node that collects them writes it");
DEFINE_string(heatmap, "", "file for a picture of the matrix: HTML if its name ends in .html or .htm, otherwise SVG");
DECLARE_int32(port);
DECLARE_string(polling);
DECLARE_string(threads);
DECLARE_string(role);

namespace rdmacomm::mesh {
namespace {

constexpr double kMaxSeconds = 86400;
constexpr std::size_t kMaxHostFileBytes = std::size_t{1} << 20;

programs::Help help() {
  programs::Help help{
      .usage =
          "mesh_comm_service --local=N [OPTION...]\n"
          "       mesh_comm_service --cluster=HOST[:PORT],... [--rank=N] [OPTION...]\n"
          "       mesh_comm_service --hostfile=FILE [--rank=N] [OPTION...]\n"
          "       srun mesh_comm_service [OPTION...]\n"
          "       mpirun mesh_comm_service [OPTION...]",
      .purpose =
          "Connects N nodes, each with each other node in both directions. Then each node sends to all other nodes at "
          "the same time, for some seconds or until an exact number of bytes is sent. Each node prints its own "
          "results; "
          "the node with the lowest rank also prints the N x N matrix of rates.\n"
          "With --cluster or --hostfile, start the program on every node, with the same options. Nodes that start "
          "early "
          "wait for the others (--connect-timeout). Under srun and mpirun, a node finds its rank in the environment.",
      .groups =
          {{"Nodes",
            {{"local", "N"},
             {"cluster", "LIST"},
             {"hostfile", "FILE"},
             {"rank", "N"},
             {"port", "N", "1 to 65535: TCP port of each node that is listed without a port; not used with --local"},
             {"listen", "ADDRESS",
              "address at which this node listens. Without it: the address in the list; every address of this host if "
              "the list has a name. Nodes need no password"}}},
           {"Traffic",
            {{"op", "OP"},
             {"size", "BYTES"},
             {"duration", "SECONDS"},
             {"total", "BYTES"},
             {"queue_depth", "N"},
             {"verify", ""}}},
           programs::mode_help(programs::OwnThread::kNever),
           {"Files", {{"json", "FILE"}, {"heatmap", "FILE"}}},
           {"Nodes that start late, end or do not answer",
            {{"on_failure", "stop|continue"},
             {"connect_timeout", "SECONDS",
              "number of seconds to look up the names of the nodes; also the number of seconds for which a node tries "
              "to connect to another node, and for which it waits for each answer"},
             {"silent_peer_after", "SECONDS"},
             {"connector", "KIND"}}}},
      .closing =
          "Exit status: 0 on success; 1 on failure, with one line on standard error that gives the reason. With "
          "--on-failure=continue the loss of other nodes is not a failure, unless no other node is left. With --local, "
          "a "
          "killed process is a failure.\n\n"
          "Examples:\n"
          "  mesh_comm_service --local=8 --verify --total=64M\n"
          "  mesh_comm_service --cluster=node1,node2,node3 --op=read --heatmap=mesh.svg\n"
          "  srun --nodes=16 mesh_comm_service --json=mesh.json",
  };
  auto connection = programs::connection_help();
  help.groups.push_back(std::move(connection.back()));  // the device group
  return help;
}

Error bad_flag(const std::string& flag, const std::string& why) {
  return make_error(Errc::kInvalidArgument, "--" + flag + ": " + why);
}

bool given(const char* flag) {
  return !gflags::GetCommandLineFlagInfoOrDie(flag).is_default;
}

/// The values of all flags, without the flags that identify nodes. A value.
struct Options {
  Terms terms = {};
  programs::ConnectionFlags connection = {};
  programs::ModeFlags modes = {};
  OnFailure on_failure = OnFailure::kStop;
};

Result<Terms> read_terms() {
  Terms terms;
  const auto op = parse_op(FLAGS_op);
  if (!op) return op.error();
  terms.op = *op;
  const auto size = programs::parse_size(FLAGS_size);
  if (!size) return bad_flag("size", size.error().context);
  terms.size = *size;
  terms.verify = FLAGS_verify;
  terms.depth =
      FLAGS_queue_depth == 0 ? usual_depth(terms.size) : static_cast<std::uint32_t>(std::max(FLAGS_queue_depth, 0));
  if (!FLAGS_total.empty()) {
    const auto total = programs::parse_size(FLAGS_total);
    if (!total) return bad_flag("total", total.error().context);
    if (given("duration"))
      return bad_flag("total", "sets the amount of traffic, and --duration its time: give only one of them");
    terms.total = *total;
  } else if (FLAGS_duration > 0 && FLAGS_duration <= kMaxSeconds) {
    terms.duration_us = static_cast<std::uint64_t>(std::ceil(FLAGS_duration * 1e6));
  } else {
    return bad_flag("duration=" + programs::number_given(FLAGS_duration),
                    "possible are more than 0, and up to 86400 seconds");
  }
  if (FLAGS_queue_depth < 0)
    return bad_flag("queue-depth=" + std::to_string(FLAGS_queue_depth),
                    "possible are 0 to " + std::to_string(Terms::kMaxDepth));
  if (Status valid = terms.validate(); !valid.ok()) return valid.error();
  return terms;
}

Result<OnFailure> read_on_failure() {
  if (FLAGS_on_failure == "stop") return OnFailure::kStop;
  if (FLAGS_on_failure == "continue") return OnFailure::kContinue;
  return bad_flag("on-failure=" + FLAGS_on_failure, "possible are stop and continue");
}

Result<Options> read_options() {
  if (!FLAGS_role.empty()) return bad_flag("role", "each node of a mesh is both server and client; remove this option");
  const auto terms = read_terms();
  if (!terms) return terms.error();
  auto connection = programs::read_connection_flags();
  if (!connection) return connection.error();
  const auto modes = programs::read_mode_flags(programs::OwnThread::kNever);
  if (!modes) return modes.error();
  const auto on_failure = read_on_failure();
  if (!on_failure) return on_failure.error();
  if (!FLAGS_json.empty() && FLAGS_json == FLAGS_heatmap) {
    return bad_flag("heatmap", "--json names the same file; choose another file for one of them");
  }
  for (const std::string& path : {FLAGS_json, FLAGS_heatmap}) {
    if (path.empty()) continue;
    if (Status writable = programs::check_replaceable(path); !writable.ok()) return writable.error();
  }
  return Options{.terms = *terms, .connection = std::move(*connection), .modes = *modes, .on_failure = *on_failure};
}

/// The nodes, and the rank of this one. A value.
struct Place {
  Cluster cluster = {};
  int rank = 0;
};

/// The beginning of a file, up to `most` bytes. Returns  the system's error
Result<std::string> read_file(const std::string& path, std::size_t most) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return make_error(last_system_error(), "cannot open it");
  std::string content(most, '\0');
  std::size_t size = 0;
  while (size < most) {
    const ssize_t got = retry_interrupted([&] { return ::read(file.get(), content.data() + size, most - size); });
    if (got < 0) return make_error(last_system_error(), "cannot read it");
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  content.resize(size);
  return content;
}

Result<std::optional<Cluster>> read_cluster(std::uint16_t port) {
  if (!FLAGS_cluster.empty() && !FLAGS_hostfile.empty())
    return bad_flag("hostfile", "give --cluster or --hostfile, not both");
  if (!FLAGS_cluster.empty()) {
    auto cluster = parse_cluster(FLAGS_cluster, port);
    if (!cluster) return bad_flag("cluster", cluster.error().context);
    return std::optional(std::move(*cluster));
  }
  if (FLAGS_hostfile.empty()) return std::optional<Cluster>();
  auto read = read_file(FLAGS_hostfile, kMaxHostFileBytes + 1);
  if (!read) return make_error(read.code(), "--hostfile: cannot read " + FLAGS_hostfile);
  const std::string content = std::move(*read);
  if (content.size() > kMaxHostFileBytes) {
    return bad_flag("hostfile", FLAGS_hostfile + " is longer than " + programs::size_text(kMaxHostFileBytes) +
                                    ": it is not a list of hosts");
  }
  auto cluster = parse_host_file(content, port);
  if (!cluster) return bad_flag("hostfile", FLAGS_hostfile + ": " + cluster.error().context);
  return std::optional(std::move(*cluster));
}

Result<Place> find_place(std::uint16_t port, HostBook& book) {
  auto cluster = read_cluster(port);
  if (!cluster) return cluster.error();
  const Environment environment = [](const char* name) { return ::secure_getenv(name); };
  const auto job = find_job(environment);
  if (!job) return job.error();
  Place place;
  if (*cluster) {
    place.cluster = std::move(**cluster);
  } else if (*job) {
    auto hosts = find_hosts(environment, **job, port);
    if (!hosts) return hosts.error();
    place.cluster = std::move(*hosts);
  } else {
    return make_error(Errc::kInvalidArgument,
                      "no nodes are given: use --local=N, --cluster=HOST,HOST,... or --hostfile=FILE, or start it with "
                      "srun or mpirun");
  }
  const auto nodes = static_cast<int>(place.cluster.size());
  if (given("rank")) {
    if (FLAGS_rank < 0 || FLAGS_rank >= nodes) {
      return bad_flag("rank=" + std::to_string(FLAGS_rank), "possible are 0 to " + std::to_string(nodes - 1));
    }
    place.rank = FLAGS_rank;
  } else if (*job && (*job)->size == nodes) {
    place.rank = (*job)->rank;
  } else {
    const auto rank = find_rank(place.cluster, book);
    if (!rank) return rank.error();
    place.rank = *rank;
  }
  return place;
}

Status write_files(const ReportHead& head, const std::vector<NodeResult>& results) {
  if (!FLAGS_json.empty()) {
    if (Status written = programs::replace_file(FLAGS_json, mesh_json(head, results)); !written.ok()) return written;
  }
  if (FLAGS_heatmap.empty()) return {};
  return programs::replace_file(FLAGS_heatmap, heat_map_for(FLAGS_heatmap, head, rate_matrix(results, head.nodes)));
}

/// Checked before anything is opened, because a machine that runs out of memory later ends processes of its choice.
/// here   the number of `nodes` on this machine, as far as this process knows
Status check_memory(const Terms& terms, int nodes, int here) {
  const auto available = programs::available_memory();
  const std::uint64_t needed =
      terms.bytes_per_peer() * static_cast<std::uint64_t>(nodes - 1) * static_cast<std::uint64_t>(here);
  if (!available || needed <= *available) return {};
  return make_error(Errc::kInvalidArgument,
                    "--size=" + programs::size_text(terms.size) + ", --queue-depth=" + std::to_string(terms.depth) +
                        (here > 1 ? ": " + std::to_string(here) + " nodes need " : ": a node needs ") +
                        programs::gib_text(needed) + " for messages with " + std::to_string(nodes - 1) +
                        " other nodes each, and this host has " + programs::gib_text(*available) +
                        " available; choose smaller messages, or fewer nodes");
}

/// The same for file descriptors, for a process that is one of the nodes or starts them. The numbers were counted on
/// soft0 with 4 to 32 nodes, plus about 25.
Status allow_descriptors(const programs::ModeFlags& modes, int nodes) {
  const int pairs = 2 * (nodes - 1);
  const bool each_its_own = modes.threads == ThreadMode::kThreadPerChannel;
  const int queues = each_its_own ? pairs : std::min(modes.shared_queues, pairs);
  const Status allowed = programs::allow_descriptors(static_cast<std::uint64_t>(40 + 10 * nodes + 4 * queues));
  if (allowed.ok()) return {};
  return make_error(allowed.code(), std::to_string(nodes) + " nodes: " + allowed.error().context +
                                        "; or choose fewer nodes" +
                                        (each_its_own ? ", or --threads=shared-cq, which needs fewer" : ""));
}

/// Runs one node in this process. Returns its exit status.
int run_node(const Options& options, int rank, int nodes, const HostPort& listen,
             const std::function<Result<Cluster>(std::uint16_t)>& find_cluster,
             const std::function<void(std::string_view)>& summarize) {
  // With --local, the lines of all nodes except 0 have the rank in brackets before them.
  const std::size_t width = programs::output_width();
  const std::size_t before = given("local") && rank > 0 ? ("[" + std::to_string(rank) + "] ").size() : 0;
  const ReportHead head{.terms = options.terms,
                        .nodes = nodes,
                        .polling = FLAGS_polling,
                        .threads = FLAGS_threads,
                        .width = width - std::min(width, before)};
  Node node({.rank = rank,
             .nodes = nodes,
             .terms = options.terms,
             .listen = listen,
             .find_cluster = find_cluster,
             .connection = options.connection,
             .modes = options.modes,
             .on_failure = options.on_failure,
             .connect_timeout = options.connection.session.tcp.connect_timeout,
             .on_result = [&head](const NodeResult& result) { std::cout << node_report(head, result) << std::flush; },
             .on_results =
                 [&](const std::vector<NodeResult>& results) {
                   summarize(mesh_report(head, results));
                   return write_files(head, results);
                 }});
  const Status outcome = node.run();
  if (outcome.ok()) return programs::exit_status(outcome);
  return programs::exit_status(
      make_error(outcome.code(), "node " + std::to_string(rank) + ": " + outcome.error().context));
}

int run() {
  const auto options = read_options();
  if (!options) return programs::exit_status(options.error());
  if (given("local")) {
    if (!FLAGS_cluster.empty() || !FLAGS_hostfile.empty() || given("rank")) {
      return programs::exit_status(bad_flag("local", "starts all nodes; remove --cluster, --hostfile and --rank"));
    }
    if (!programs::listen_address().empty()) {
      return programs::exit_status(
          bad_flag("listen", "with --local all nodes listen at 127.0.0.1; remove this option"));
    }
    if (FLAGS_local < static_cast<int>(kMinNodes) || FLAGS_local > static_cast<int>(kMaxNodes)) {
      return programs::exit_status(bad_flag("local=" + std::to_string(FLAGS_local), "possible are 2 to 1024"));
    }
    if (Status fits = check_memory(options->terms, FLAGS_local, FLAGS_local); !fits.ok()) {
      return programs::exit_status(fits);
    }
    if (Status allowed = allow_descriptors(options->modes, FLAGS_local); !allowed.ok()) {
      return programs::exit_status(allowed);
    }
    const HostPort listen{.host = "127.0.0.1", .port = 0};
    return run_local(FLAGS_local, [&](int rank, const auto& find_cluster, const auto& summarize) {
      return run_node(*options, rank, FLAGS_local, listen, find_cluster, summarize);
    });
  }
  if (FLAGS_port < 1)
    return programs::exit_status(bad_flag("port=" + std::to_string(FLAGS_port), "possible are 1 to 65535"));
  HostBook hosts(Deadline::after(options->connection.session.tcp.connect_timeout));
  const auto place = find_place(static_cast<std::uint16_t>(FLAGS_port), hosts);
  if (!place) return programs::exit_status(place.error());
  const int nodes = static_cast<int>(place->cluster.size());
  if (Status fits = check_memory(options->terms, nodes, 1); !fits.ok()) return programs::exit_status(fits);
  if (Status allowed = allow_descriptors(options->modes, nodes); !allowed.ok()) return programs::exit_status(allowed);
  HostPort listen = place->cluster[static_cast<std::size_t>(place->rank)];
  if (!programs::listen_address().empty()) {
    listen.host = programs::listen_address();
  } else if (listens_everywhere(place->cluster, place->rank, hosts)) {
    listen.host.clear();
  }
  std::cout << "node " << place->rank << ": " << programs::listening_text(listen.host, listen.port) << std::endl;
  return run_node(
      *options, place->rank, nodes, listen, [&place](std::uint16_t) { return Result<Cluster>(place->cluster); },
      [](std::string_view text) { std::cout << text << std::flush; });
}

}  // namespace
}  // namespace rdmacomm::mesh

int main(int argc, char** argv) {
  std::vector<std::string> arguments = rdmacomm::mesh::join_cluster_words({argv, argv + argc});
  std::vector<char*> joined;
  for (std::string& argument : arguments) joined.push_back(argument.data());
  joined.push_back(nullptr);
  int count = static_cast<int>(arguments.size());
  char** values = joined.data();
  // Many nodes share few cores, so the defaults do not spin.
  gflags::SetCommandLineOptionWithMode("polling", "adaptive", gflags::SET_FLAGS_DEFAULT);
  gflags::SetCommandLineOptionWithMode("threads", "shared-cq", gflags::SET_FLAGS_DEFAULT);
  if (const auto ended = rdmacomm::programs::start(count, values, rdmacomm::mesh::help())) return *ended;
  return rdmacomm::mesh::run();
}
