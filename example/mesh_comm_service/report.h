// report.h - prints the measurements of a mesh, as text and as JSON.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "mesh_comm_service/node_result.h"
#include "mesh_comm_service/terms.h"

namespace rdmacomm::mesh {

/// The options of the run that the figures belong to. A value.
struct ReportHead {
  Terms terms = {};
  int nodes = 0;
  std::string polling = {};  ///< as in the flags
  std::string threads = {};
  std::size_t width = SIZE_MAX;  ///< characters in a line
};

/// The figures of one node: a line for each other node, their sum, and the resources used.
[[nodiscard]] std::string node_report(const ReportHead& head, const NodeResult& node);

/// GB/s from node `row` to node `column`; 0 if unknown, and on the diagonal.
using Matrix = std::vector<std::vector<double>>;
/// nodes   the number of nodes: ranks are less than that
[[nodiscard]] Matrix rate_matrix(const std::vector<NodeResult>& results, int nodes);
/// Ranks without figures.
[[nodiscard]] std::vector<int> missing_ranks(const std::vector<NodeResult>& results, int nodes);

/// The N x N matrix, and the sums over all nodes.
[[nodiscard]] std::string mesh_report(const ReportHead& head, const std::vector<NodeResult>& results);
[[nodiscard]] std::string mesh_json(const ReportHead& head, const std::vector<NodeResult>& results);

}  // namespace rdmacomm::mesh
