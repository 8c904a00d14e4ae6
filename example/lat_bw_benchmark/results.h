// results.h - the results of a run, as a table and as JSON.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "lat_bw_benchmark/plan.h"
#include "rdmacomm/result.h"
#include "support/machine_baseline.h"
#include "support/statistics.h"
#include "support/table.h"

namespace rdmacomm::benchmark {

/// One line of the table. A value.
struct CellResult {
  Cell cell = {};
  std::uint64_t iterations = 0;       ///< measured, without the warm-up
  bool cut_short = false;             ///< the limit of iterations was reached before the duration was over
  programs::Summary latency_us = {};  ///< latencies
  double gb_per_s = 0;                ///< bandwidths: 10^9 bytes
  double mops_per_s = 0;              ///< 10^6 operations
  double base = 0;                    ///< the machine at the same time: ns of a cache line transfer, or GB/s of memcpy
  double ratio = 0;                   ///< the result (p50, GB/s) to base, median over the rounds; 0: not measured
};

/// The description of a run. A value.
struct RunInfo {
  std::string client = {};  ///< device and queue pair of each peer
  std::string server = {};
  std::uint32_t path_mtu_bytes = 0;
  int client_cpu = -1;
  int server_cpu = -1;
  double clock_cost_ns = 0;  ///< contained in each latency
};

/// Prints the description of a run, each line of results as soon as it is known, and the machine's figures at the end.
class ResultReport {
 public:
  ResultReport(std::ostream& out, const Plan& plan);

  void begin(const RunInfo& info);
  void add(const CellResult& result);
  void end(const programs::MachineBaseline& machine);
  /// Writes everything as one JSON object. Returns  the system's error if `path` cannot be written
  [[nodiscard]] Status write_json(const std::string& path, const programs::MachineBaseline& machine) const;

 private:
  std::ostream& out_;
  const Plan& plan_;
  RunInfo info_;
  programs::Table table_;
  std::vector<CellResult> results_;
};

}  // namespace rdmacomm::benchmark
