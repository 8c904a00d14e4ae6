// job_environment.h - what Slurm, mpirun and their like tell the processes that they start.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mesh_comm_service/cluster.h"
#include "rdmacomm/result.h"

namespace rdmacomm::mesh {

/// What such a launcher has said. A value.
struct Job {
  std::string launcher = {};  ///< "Slurm", "Open MPI", "PMI": for messages
  int rank = 0;
  int size = 0;
  bool all_here = false;  ///< all of its processes are on this machine
};

/// nullptr where there is no variable of that name, as getenv(3).
using Environment = std::function<const char*(const char*)>;

/// Reads OMPI_COMM_WORLD_RANK and _SIZE (Open MPI), PMI_RANK and PMI_SIZE (MPICH and others), SLURM_PROCID and
/// SLURM_NTASKS, in this order: the innermost launcher counts.
/// Returns  empty: none of them; kInvalidArgument: a variable that is not what it should be, or more than kMaxNodes
[[nodiscard]] Result<std::optional<Job>> find_job(const Environment& environment);
/// The hosts of its processes, by rank: this machine where all are on it, else Slurm's list, in its order with all
/// tasks of a host side by side (--distribution=block). `port` is that of the first node on each host.
/// Returns  kInvalidArgument: nobody says where they are; a variable that is not what it should be; ranks that are
///          distributed otherwise; or as parse_cluster
[[nodiscard]] Result<Cluster> find_hosts(const Environment& environment, const Job& job, std::uint16_t port);

/// "node[01-03,7],login" as Slurm writes lists of hosts: node01, node02, node03, node7, login. An element may
/// have several brackets; the last one counts fastest.
/// Returns  kInvalidArgument: a bracket that is not closed, a range that is none, or too many hosts
[[nodiscard]] Result<std::vector<std::string>> expand_host_list(const std::string& list);
/// "2(x3),1": 2, 2, 2, 1. Returns  kInvalidArgument: no such list, or more than kMaxNodes hosts or tasks
[[nodiscard]] Result<std::vector<int>> expand_task_counts(const std::string& counts);

}  // namespace rdmacomm::mesh
