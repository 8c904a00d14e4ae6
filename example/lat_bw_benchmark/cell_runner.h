// cell_runner.h - measures one cell: in rounds, with the machine measured in between.
#pragma once

#include <chrono>
#include <cstdint>

#include "lat_bw_benchmark/lane.h"
#include "lat_bw_benchmark/part.h"
#include "lat_bw_benchmark/results.h"
#include "support/machine_baseline.h"
#include "support/statistics.h"

namespace rdmacomm::benchmark {

/// The client's side of measuring. Threads: one.
class CellRunner {
 public:
  /// longest_part  a round that would take longer is measured in several parts
  CellRunner(Lane& lane, programs::MachineBaseline& machine, std::chrono::nanoseconds longest_part);

  /// Measures cell `index` of the plan.
  /// Returns  std::errc::io_error: what arrived is not what was sent (the context says what); kPeerLost; kTimeout: the
  ///          server does not answer; or as the operations
  [[nodiscard]] Result<CellResult> run(std::uint32_t index);
  /// One operation of the first cell: when it returns ok, the server takes this client's run for begun.
  [[nodiscard]] Status begin();

 private:
  /// One part, run on both sides.
  struct Outcome {
    std::uint64_t elapsed_ticks = 0;
    std::uint64_t server_elapsed_ns = 0;
  };
  struct Rounds;

  /// The samples are those of this part.
  Result<Outcome> run_part(std::uint32_t index, std::uint64_t iterations);
  /// Adds its samples to those that there are.
  Result<Outcome> measure_part(std::uint32_t index, std::uint64_t iterations);
  /// A round: one part, or several one after the other if it is a long one.
  Result<Outcome> run_parts(std::uint32_t index, std::uint64_t iterations);
  void set_part_length(double ns, std::uint64_t iterations);
  Result<std::uint64_t> iterations_of_a_round(std::uint32_t index);
  Result<double> fastest_probe(std::uint32_t index, std::uint64_t iterations, double took_ns);
  Status run_round(std::uint32_t index, std::uint64_t iterations, Rounds& rounds);
  Status check(const Cell& cell, const Verifier& mine, const Report& theirs) const;
  template <typename T>
  Result<T> receive(std::chrono::seconds patience);

  Lane& lane_;
  programs::MachineBaseline& machine_;
  const std::vector<Cell> cells_;
  const double longest_part_ns_;
  programs::Samples samples_;          // of one part, or of one round
  std::uint64_t part_iterations_ = 1;  // at most, in a part of a round of this cell
  bool cut_short_ = false;             // the duration of the cell has room for more iterations than may be
  std::uint32_t sequence_ = 0;
};

}  // namespace rdmacomm::benchmark
