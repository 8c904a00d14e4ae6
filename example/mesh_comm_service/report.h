// report.h - what a mesh has measured, for people and for programs.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "mesh_comm_service/node_result.h"
#include "mesh_comm_service/terms.h"

namespace rdmacomm::mesh {

/// What the figures are of. A value.
struct ReportHead {
  Terms terms = {};
  int nodes = 0;
  std::string polling = {};  ///< as the flags have it
  std::string threads = {};
  std::size_t width = SIZE_MAX;  ///< characters that a line has room for
};

/// One node's figures: a line for each of the others, their sum, and what the node took for it.
[[nodiscard]] std::string node_report(const ReportHead& head, const NodeResult& node);

/// GB/s from node `row` to node `column`; 0 where nothing is known, as on the diagonal.
using Matrix = std::vector<std::vector<double>>;
/// nodes   how many there are: ranks below that
[[nodiscard]] Matrix rate_matrix(const std::vector<NodeResult>& results, int nodes);
/// Ranks of which there are no figures.
[[nodiscard]] std::vector<int> missing_ranks(const std::vector<NodeResult>& results, int nodes);

/// The N x N matrix and what all nodes did together.
[[nodiscard]] std::string mesh_report(const ReportHead& head, const std::vector<NodeResult>& results);
[[nodiscard]] std::string mesh_json(const ReportHead& head, const std::vector<NodeResult>& results);

}  // namespace rdmacomm::mesh
