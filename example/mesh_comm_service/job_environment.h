// job_environment.h - reads the variables that Slurm, mpirun and other launchers set for their processes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mesh_comm_service/cluster.h"
#include "rdmacomm/result.h"

namespace rdmacomm::mesh {

/// The values from such a launcher. A value.
struct Job {
  std::string launcher = {};  ///< "Slurm", "Open MPI", "PMI": for messages
  int rank = 0;
  int size = 0;
  bool all_here = false;  ///< all processes of the job are on this machine
};

/// Like getenv(3): nullptr if no variable has that name.
using Environment = std::function<const char*(const char*)>;

/// Reads OMPI_COMM_WORLD_RANK and _SIZE (Open MPI), PMI_RANK and PMI_SIZE (MPICH and others), SLURM_PROCID and
/// SLURM_NTASKS, in this order, so that the innermost launcher is used.
/// Returns  empty: none of them is set; kInvalidArgument: a variable has a wrong value, or more than kMaxNodes
[[nodiscard]] Result<std::optional<Job>> find_job(const Environment& environment);
/// The hosts of all processes of the job, by rank. If all are on this machine, it is this machine; else it is Slurm's
/// list, in its order, with all tasks of a host together (--distribution=block). `port` is the port of the first node
/// on each host.
/// Returns  kInvalidArgument: no launcher lists the hosts; a variable has a wrong value; ranks are distributed
///          differently; or as parse_cluster
[[nodiscard]] Result<Cluster> find_hosts(const Environment& environment, const Job& job, std::uint16_t port);

/// Expands a host list in Slurm's notation: "node[01-03,7],login" means node01, node02, node03, node7, login. An
/// element may have several brackets; the last one changes fastest.
/// Returns  kInvalidArgument: a bracket that is not closed, a wrong range, or too many hosts
[[nodiscard]] Result<std::vector<std::string>> expand_host_list(const std::string& list);
/// "2(x3),1": 2, 2, 2, 1. Returns  kInvalidArgument: wrong notation, or more than kMaxNodes hosts or tasks
[[nodiscard]] Result<std::vector<int>> expand_task_counts(const std::string& counts);

}  // namespace rdmacomm::mesh
