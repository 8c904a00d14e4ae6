// cell_runner.h - measures one cell in rounds, and the machine in between.
#pragma once

#include <chrono>
#include <cstdint>

#include "lat_bw_benchmark/lane.h"
#include "lat_bw_benchmark/part.h"
#include "lat_bw_benchmark/results.h"
#include "support/machine_baseline.h"
#include "support/statistics.h"

namespace rdmacomm::benchmark {

/// The client's half of the measurement. Threads: one at a time.
class CellRunner {
 public:
  /// longest_part  a longer round is measured in several parts
  CellRunner(Lane& lane, programs::MachineBaseline& machine, std::chrono::nanoseconds longest_part);

  /// Measures cell `index` of the plan.
  /// Returns  std::errc::io_error: a message is not equal to the one sent (the context describes the difference);
  ///          kPeerLost; kTimeout: the server does not answer; or as the operations
  [[nodiscard]] Result<CellResult> run(std::uint32_t index);
  /// Runs one operation of the first cell. When it returns ok, the server considers this client's run as begun.
  [[nodiscard]] Status begin();

 private:
  /// The times of one part on both peers.
  struct Outcome {
    std::uint64_t elapsed_ticks = 0;
    std::uint64_t server_elapsed_ns = 0;
  };
  struct Rounds;

  /// samples_ then contains this part only.
  Result<Outcome> run_part(std::uint32_t index, std::uint64_t iterations);
  /// Appends the samples of this part to samples_.
  Result<Outcome> measure_part(std::uint32_t index, std::uint64_t iterations);
  /// Runs a round: one part, or, if it is long, several parts one after the other.
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
  std::uint64_t part_iterations_ = 1;  // the most iterations in one part of a round of this cell
  bool cut_short_ = false;             // the cell's duration has time for more iterations than allowed
  std::uint32_t sequence_ = 0;
};

}  // namespace rdmacomm::benchmark
