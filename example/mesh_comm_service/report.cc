#include "mesh_comm_service/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/sizes.h"
#include "support/table.h"

namespace rdmacomm::mesh {
namespace {

using nlohmann::ordered_json;
using programs::number_text;

/// The sum over all nodes. A value.
struct Sums {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  std::uint64_t counted_messages = 0;
  std::uint64_t corrupt = 0;
  std::uint64_t elapsed_ns = 0;
  std::uint64_t cpu_us = 0;
  std::uint64_t setup_us = 0;
  std::uint64_t connections = 0;
  programs::LatencyHistogram latency_ns = {};

  [[nodiscard]] double per_ns(std::uint64_t amount) const {
    return elapsed_ns == 0 ? 0 : static_cast<double>(amount) / static_cast<double>(elapsed_ns);
  }
  [[nodiscard]] double cpu_ns_per_message() const {
    return messages == 0 ? 0 : static_cast<double>(cpu_us) * 1e3 / static_cast<double>(messages);
  }
};

Sums sums_of(const std::vector<NodeResult>& results) {
  Sums sums;
  for (const NodeResult& node : results) {
    sums.messages += node.messages();
    sums.bytes += node.bytes();
    for (const PeerResult& peer : node.peers) {
      sums.counted_messages += peer.counted_messages;
      sums.corrupt += peer.corrupt;
    }
    sums.elapsed_ns = std::max(sums.elapsed_ns, node.elapsed_ns);
    sums.setup_us = std::max(sums.setup_us, node.setup_us);
    sums.cpu_us += node.cpu_us;
    sums.connections += node.queue_pairs / 2;
    sums.latency_ns.add(node.latency_ns);
  }
  return sums;
}

/// The fairness of the least fair node.
double fairness_of(const std::vector<NodeResult>& results) {
  double fairness = 1;
  for (const NodeResult& node : results) fairness = std::min(fairness, node.fairness());
  return fairness;
}

std::string memory_text(std::uint64_t bytes) {
  return number_text(static_cast<double>(bytes) / (1 << 20)) + " MiB";
}

std::vector<std::string> latency_cells(const programs::Summary& us) {
  const auto cell = [&](double value, bool known) {
    return us.count > 0 && known ? number_text(value) : std::string("-");
  };
  return {cell(us.p50, true), cell(us.p99, us.has_p99()), cell(us.p999, us.has_p999()), cell(us.max, true)};
}

programs::Table peer_table(std::size_t width) {
  return programs::Table({{.header = "to", .width = 6, .left = true},
                          {.header = "messages", .width = 10},
                          {.header = "bytes", .width = 13, .dispensable = 1},
                          {.header = "arrived", .width = 10, .dispensable = 3},
                          {.header = "GB/s", .width = 7},
                          {.header = "Mops/s", .width = 7},
                          {.header = "p50 us", .width = 7},
                          {.header = "p99 us", .width = 7},
                          {.header = "p99.9 us", .width = 8, .dispensable = 2},
                          {.header = "max us", .width = 7}},
                         width);
}

/// Prints the matrix in parts, each with the number of columns that fit into a line.
void print_matrix(std::ostream& out, const Matrix& matrix, std::size_t line_width) {
  constexpr std::size_t kRank = 4;
  constexpr std::size_t kCell = 6 + 2;  // including the space before it
  const std::size_t fitting = line_width < kRank + kCell ? 1 : (line_width - kRank) / kCell;
  for (std::size_t first = 0; first < matrix.size(); first += fitting) {
    const std::size_t end = std::min(matrix.size(), first + std::min(fitting, matrix.size()));
    std::vector<programs::Column> columns = {{.header = "", .width = kRank, .left = true}};
    for (std::size_t rank = first; rank < end; ++rank) columns.push_back({.header = std::to_string(rank), .width = 6});
    const programs::Table table(columns);
    if (first > 0) out << '\n';
    table.print_header(out);
    for (std::size_t row = 0; row < matrix.size(); ++row) {
      std::vector<std::string> cells = {std::to_string(row)};
      for (std::size_t column = first; column < end; ++column) {
        cells.push_back(row == column ? "-" : number_text(matrix[row][column]));
      }
      table.print_row(out, cells);
    }
    if (end == matrix.size()) return;
  }
}

void print_peer(std::ostream& out, const programs::Table& table, const PeerResult& peer, bool counted) {
  std::vector<std::string> cells = {std::to_string(peer.rank) + (peer.lost ? " lost" : ""),
                                    std::to_string(peer.messages),
                                    std::to_string(peer.bytes),
                                    counted ? std::to_string(peer.counted_messages) : "-",
                                    number_text(peer.gb_per_s()),
                                    number_text(peer.mops_per_s())};
  std::ranges::copy(latency_cells(peer.latency_us), std::back_inserter(cells));
  table.print_row(out, cells);
}

ordered_json latency_json(const programs::Summary& us) {
  ordered_json json = {{"count", us.count}};
  if (us.count == 0) return json;
  json["p50"] = us.p50;
  if (us.has_p99()) json["p99"] = us.p99;
  if (us.has_p999()) json["p99.9"] = us.p999;
  json["max"] = us.max;
  json["mean"] = us.mean;
  return json;
}

ordered_json peer_json(const PeerResult& peer, bool counted) {
  ordered_json json = {{"rank", peer.rank}, {"messages", peer.messages}, {"bytes", peer.bytes}};
  if (counted) {
    json["arrived_messages"] = peer.counted_messages;
    json["arrived_bytes"] = peer.counted_bytes;
  }
  json["corrupt"] = peer.corrupt;
  json["elapsed_s"] = static_cast<double>(peer.elapsed_ns) / 1e9;
  json["GB_per_s"] = peer.gb_per_s();
  json["Mops_per_s"] = peer.mops_per_s();
  json["latency_us"] = latency_json(peer.latency_us);
  json["lost"] = peer.lost;
  return json;
}

ordered_json node_json(const NodeResult& node, bool counted) {
  ordered_json json = {{"rank", node.rank},
                       {"address", node.address},
                       {"pid", node.pid},
                       {"setup_s", static_cast<double>(node.setup_us) / 1e6},
                       {"messages", node.messages()},
                       {"bytes", node.bytes()},
                       {"elapsed_s", static_cast<double>(node.elapsed_ns) / 1e9},
                       {"GB_per_s", node.gb_per_s()},
                       {"Mops_per_s", node.mops_per_s()},
                       {"fairness", node.fairness()},
                       {"latency_us", latency_json(node.latency_ns.summary().scaled(1e-3))},
                       {"cpu_s", static_cast<double>(node.cpu_us) / 1e6},
                       {"memory_bytes", node.memory_bytes},
                       {"peak_memory_bytes", node.peak_memory_bytes},
                       {"queue_pairs", node.queue_pairs},
                       {"threads", node.threads}};
  json["peers"] = ordered_json::array();
  for (const PeerResult& peer : node.peers) json["peers"].push_back(peer_json(peer, counted));
  return json;
}

ordered_json terms_json(const ReportHead& head) {
  const Terms& terms = head.terms;
  ordered_json json = {{"nodes", head.nodes}, {"op", op_name(terms.op)}, {"size", terms.size}};
  if (terms.total != 0) json["total"] = terms.total;
  if (terms.duration_us != 0) json["duration_s"] = static_cast<double>(terms.duration_us) / 1e6;
  json["queue_depth"] = terms.depth;
  json["verify"] = terms.verify;
  json["polling"] = head.polling;
  json["threads"] = head.threads;
  return json;
}

}  // namespace

std::string node_report(const ReportHead& head, const NodeResult& node) {
  std::ostringstream out;
  out << "node " << node.rank << " of " << head.nodes << ", " << node.address << ", pid " << node.pid << ": "
      << head.terms.to_text() << " --polling=" << head.polling << " --threads=" << head.threads << '\n'
      << "connected in " << number_text(static_cast<double>(node.setup_us) / 1e3) << " ms; " << node.queue_pairs
      << " queue pairs, " << node.threads << " threads, " << memory_text(node.memory_bytes) << " (at most "
      << memory_text(node.peak_memory_bytes) << ")\n";
  const programs::Table table = peer_table(head.width);
  table.print_header(out);
  const bool counted = head.terms.is_counted();
  PeerResult sum{.latency_us = node.latency_ns.summary().scaled(1e-3)};
  for (const PeerResult& peer : node.peers) {
    print_peer(out, table, peer, counted);
    sum.counted_messages += peer.counted_messages;
  }
  std::vector<std::string> cells = {"all",
                                    std::to_string(node.messages()),
                                    std::to_string(node.bytes()),
                                    counted ? std::to_string(sum.counted_messages) : "-",
                                    number_text(node.gb_per_s()),
                                    number_text(node.mops_per_s())};
  std::ranges::copy(latency_cells(sum.latency_us), std::back_inserter(cells));
  table.print_row(out, cells);
  out << "fairness (slowest / fastest peer) " << number_text(node.fairness()) << ", CPU "
      << number_text(static_cast<double>(node.cpu_us) / 1e6) << " s\n";
  return out.str();
}

Matrix rate_matrix(const std::vector<NodeResult>& results, int nodes) {
  const auto size = static_cast<std::size_t>(nodes);
  Matrix matrix(size, std::vector<double>(size));
  for (const NodeResult& node : results) {
    for (const PeerResult& peer : node.peers) {
      if (node.rank < size && peer.rank < size) matrix[node.rank][peer.rank] = peer.gb_per_s();
    }
  }
  return matrix;
}

std::vector<int> missing_ranks(const std::vector<NodeResult>& results, int nodes) {
  std::vector<int> missing;
  for (int rank = 0; rank < nodes; ++rank) {
    const bool there = std::ranges::any_of(
        results, [rank](const NodeResult& node) { return node.rank == static_cast<std::uint32_t>(rank); });
    if (!there) missing.push_back(rank);
  }
  return missing;
}

std::string mesh_report(const ReportHead& head, const std::vector<NodeResult>& results) {
  std::ostringstream out;
  out << "\nGB/s from each node (row) to each other (column)\n";
  print_matrix(out, rate_matrix(results, head.nodes), head.width);
  const Sums sums = sums_of(results);
  const std::vector<std::string> latency = latency_cells(sums.latency_ns.summary().scaled(1e-3));
  out << "\nall nodes: " << sums.bytes << " bytes in " << sums.messages << " messages, "
      << number_text(sums.per_ns(sums.bytes)) << " GB/s, " << number_text(sums.per_ns(sums.messages) * 1e3)
      << " Mops/s\n"
      << "latency (us) p50 " << latency[0] << ", p99 " << latency[1] << ", p99.9 " << latency[2] << ", max "
      << latency[3] << "; CPU " << number_text(sums.cpu_ns_per_message()) << " ns per message\n"
      << "fairness of the least fair node " << number_text(fairness_of(results)) << "; " << sums.connections
      << " connections, established within " << number_text(static_cast<double>(sums.setup_us) / 1e3) << " ms\n";
  if (head.terms.verify) {
    const std::uint64_t checked = head.terms.is_counted() ? sums.counted_messages : sums.messages;
    out << "verified: " << checked << " messages, " << sums.corrupt << " of them differ from the sent ones\n";
  }
  const std::vector<int> missing = missing_ranks(results, head.nodes);
  if (!missing.empty()) {
    out << "no results of node";
    for (const int rank : missing) out << ' ' << rank;
    out << '\n';
  }
  return out.str();
}

std::string mesh_json(const ReportHead& head, const std::vector<NodeResult>& results) {
  ordered_json json = terms_json(head);
  const Sums sums = sums_of(results);
  json["messages"] = sums.messages;
  json["bytes"] = sums.bytes;
  json["corrupt"] = sums.corrupt;
  json["GB_per_s"] = sums.per_ns(sums.bytes);
  json["Mops_per_s"] = sums.per_ns(sums.messages) * 1e3;
  json["cpu_ns_per_message"] = sums.cpu_ns_per_message();
  json["latency_us"] = latency_json(sums.latency_ns.summary().scaled(1e-3));
  json["fairness"] = fairness_of(results);
  json["connections"] = sums.connections;
  json["setup_s"] = static_cast<double>(sums.setup_us) / 1e6;
  json["missing"] = missing_ranks(results, head.nodes);
  json["matrix_GB_per_s"] = rate_matrix(results, head.nodes);
  json["by_node"] = ordered_json::array();
  for (const NodeResult& node : results) json["by_node"].push_back(node_json(node, head.terms.is_counted()));
  return json.dump(2) + '\n';
}

}  // namespace rdmacomm::mesh
