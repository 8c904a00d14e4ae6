// launcher.h - --local=N: all nodes of a mesh as processes of this machine.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string_view>

#include "mesh_comm_service/cluster.h"
#include "rdmacomm/result.h"

namespace rdmacomm::mesh {

/// What one of the processes does. `find_cluster` is to be called once, with the port that it listens at, and returns
/// where all of them do. `summarize` takes what is to be printed last, about all nodes. Returns its exit status.
using NodeMain = std::function<int(int rank, const std::function<Result<Cluster>(std::uint16_t)>& find_cluster,
                                   const std::function<void(std::string_view)>& summarize)>;

/// Forks `nodes` processes that run `node`, and waits for all of them. They end with this one, however it ends. Their
/// standard error comes out as it comes, line by line; what node 0 prints, too; what the others print, when all have
/// ended, rank by rank, each line with "[rank] " before it; then the summary. A warning that several of them log comes
/// out once. Where one of them fails before all listen, all end, and one speaks. Call before anything is opened or
/// started: what this process has open, the others would have, too.
///
/// Returns the exit status of all: 0 where each has ended with 0, else 1. Which of them was ended by a signal, it says.
/// When all that still run are stopped (SIGSTOP), they are ended after kStoppedFor.
[[nodiscard]] int run_local(int nodes, const NodeMain& node);
inline constexpr std::chrono::seconds kStoppedFor{10};

}  // namespace rdmacomm::mesh
