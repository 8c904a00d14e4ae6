// Environment variables of Slurm, mpirun and other launchers: lists of hosts, counts of tasks, ranks.
#include <map>

#include "fuzz/properties.h"
#include "mesh_comm_service/job_environment.h"

namespace rdmacomm::fuzz {
namespace {
namespace job_environment_target {

constexpr std::uint16_t kPort = 2020;

void check_host_list(const std::string& text) {
  const auto hosts = mesh::expand_host_list(text);
  if (!check_outcome(hosts)) return;
  RDMACOMM_FUZZ_CHECK(!hosts->empty() && hosts->size() <= mesh::kMaxNodes);
  std::string list;
  std::size_t bytes = 0;
  for (const std::string& host : *hosts) {
    list += (list.empty() ? "" : ",") + host;
    RDMACOMM_FUZZ_CHECK(host.size() <= text.size());
    bytes += host.size();
  }
  RDMACOMM_FUZZ_CHECK(bytes <= mesh::kMaxNodes * text.size());
  const auto again = mesh::expand_host_list(list);
  if (list.find_first_of("[]") == std::string::npos) RDMACOMM_FUZZ_CHECK(again.has_value() && *again == *hosts);
}

void check_task_counts(const std::string& text) {
  const auto counts = mesh::expand_task_counts(text);
  if (!check_outcome(counts)) return;
  RDMACOMM_FUZZ_CHECK(counts->size() <= mesh::kMaxNodes);
  std::size_t sum = 0;
  for (const int count : *counts) {
    RDMACOMM_FUZZ_CHECK(count >= 0);
    sum += static_cast<std::size_t>(count);
  }
  RDMACOMM_FUZZ_CHECK(sum <= mesh::kMaxNodes);
}

/// Lines NAME=VALUE.
std::map<std::string, std::string> variables_of(std::string_view text) {
  std::map<std::string, std::string> variables;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    const std::size_t equals = line.find('=');
    if (equals != std::string_view::npos) variables.emplace(line.substr(0, equals), line.substr(equals + 1));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return variables;
}

void check_environment(std::string_view text) {
  const auto variables = variables_of(text);
  const mesh::Environment environment = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  const auto job = mesh::find_job(environment);
  if (!check_outcome(job) || !*job) return;
  RDMACOMM_FUZZ_CHECK((*job)->rank >= 0 && (*job)->rank < (*job)->size);
  RDMACOMM_FUZZ_CHECK((*job)->size <= static_cast<int>(mesh::kMaxNodes));
  const auto hosts = mesh::find_hosts(environment, **job, kPort);
  if (check_outcome(hosts)) RDMACOMM_FUZZ_CHECK(hosts->size() == static_cast<std::size_t>((*job)->size));
}

void run(Bytes input) {
  const std::string text(text_of(input));
  check_host_list(text);
  check_task_counts(text);
  check_environment(text);
}

std::vector<Seed> seeds() {
  return {
      {"host_list", bytes_of("node[01-03,7],login")},
      {"host_list_of_two_brackets", bytes_of("rack[1-2]node[1-4]-ib")},
      {"host_list_with_an_open_bracket", bytes_of("node[1-2")},
      {"task_counts", bytes_of("2(x3),1")},
      {"open_mpi", bytes_of("OMPI_COMM_WORLD_RANK=1\nOMPI_COMM_WORLD_SIZE=4\nOMPI_COMM_WORLD_LOCAL_SIZE=4\n")},
      {"pmi", bytes_of("PMI_RANK=0\nPMI_SIZE=2\nMPI_LOCALNRANKS=1\n")},
      {"slurm", bytes_of("SLURM_PROCID=1\nSLURM_NTASKS=5\nSLURM_JOB_NODELIST=node[1-2]\n"
                         "SLURM_TASKS_PER_NODE=3,2\nSLURM_DISTRIBUTION=block\n")},
      {"slurm_cyclic", bytes_of("SLURM_PROCID=1\nSLURM_NTASKS=2\nSLURM_STEP_NODELIST=node[1-2]\n"
                                "SLURM_STEP_TASKS_PER_NODE=1(x2)\nSLURM_DISTRIBUTION=cyclic:cyclic\n")},
  };
}

}  // namespace job_environment_target
}  // namespace

const Target job_environment{"job_environment", job_environment_target::run, job_environment_target::seeds};

}  // namespace rdmacomm::fuzz
