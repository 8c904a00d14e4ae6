// launcher.h - --local=N: runs all nodes of a mesh as processes of this machine.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string_view>

#include "mesh_comm_service/cluster.h"
#include "rdmacomm/result.h"

namespace rdmacomm::mesh {

/// The program of one process. It must call `find_cluster` once, with the port at which it listens, and gets the
/// addresses of all nodes. `summarize` takes the text about all nodes that is printed last. Returns the exit status.
using NodeMain = std::function<int(int rank, const std::function<Result<Cluster>(std::uint16_t)>& find_cluster,
                                   const std::function<void(std::string_view)>& summarize)>;

/// Forks `nodes` processes that run `node`, and waits for all of them. They end when this process ends, for any reason.
/// Their standard error is printed at once, line by line, and so is the output of node 0. The output of the other nodes
/// is printed when all have ended, in the order of their ranks, with "[rank] " before each line. The summary comes
/// last. If several nodes log the same warning, it is printed once. If a node fails before all listen, all end, and
/// only that node's error is printed. Call this before anything is opened or started, because the child processes
/// inherit all open descriptors.
///
/// Returns the exit status of all: 0 if each node has ended with 0, else 1. Prints which nodes were ended by a signal.
/// If all nodes that still run are stopped (SIGSTOP), they are ended after kStoppedFor.
[[nodiscard]] int run_local(int nodes, const NodeMain& node);
inline constexpr std::chrono::seconds kStoppedFor{10};

}  // namespace rdmacomm::mesh
