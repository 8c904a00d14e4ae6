#include "lat_bw_benchmark/cell_runner.h"

#include <algorithm>
#include <cmath>

namespace rdmacomm::benchmark {
namespace {

constexpr std::uint64_t kMaxSamples = Plan::kMaxLatencies;
constexpr std::chrono::seconds kPatience{60};
/// Shorter parts are repeated when the length of a round is determined.
constexpr std::uint64_t kFewIterations = 10'000;

std::uint64_t max_iterations_of_a_round(const Plan& plan, const Cell& cell) {
  const std::uint64_t all = cell.is_latency() ? kMaxSamples : Plan::kMaxIterations;
  return (all + plan.rounds - 1) / plan.rounds;
}

std::uint64_t max_samples_of_a_round(const Plan& plan) {
  const std::uint64_t asked = plan.iterations == 0 ? kMaxSamples : plan.iterations;
  return std::max<std::uint64_t>(std::min(asked, kMaxSamples) / plan.rounds + 1, 1024);
}

}  // namespace

/// The results of the rounds of one cell.
struct CellRunner::Rounds {
  programs::Samples samples;  ///< of all rounds, in ticks
  std::vector<double> figures;
  std::vector<double> bases;
  std::vector<double> ratios;
  std::uint64_t iterations = 0;
};

CellRunner::CellRunner(Lane& lane, programs::MachineBaseline& machine, std::chrono::nanoseconds longest_part)
    : lane_(lane),
      machine_(machine),
      cells_(lane.plan().cells()),
      longest_part_ns_(static_cast<double>(longest_part.count())),
      samples_(max_samples_of_a_round(lane.plan())) {}

Status CellRunner::begin() {
  return run_part(0, 1).status();
}

Result<CellResult> CellRunner::run(std::uint32_t index) {
  const Cell& cell = cells_[index];
  const auto iterations = iterations_of_a_round(index);
  if (!iterations) return iterations.error();
  Rounds rounds{.samples = programs::Samples(cell.is_latency() ? *iterations * lane_.plan().rounds : 0),
                .figures = {},
                .bases = {},
                .ratios = {}};
  for (std::uint32_t round = 0; round < lane_.plan().rounds; ++round) {
    if (Status done = run_round(index, *iterations, rounds); !done.ok()) return done.error();
  }
  CellResult result{.cell = cell, .iterations = rounds.iterations, .cut_short = cut_short_};
  result.base = programs::median(rounds.bases);
  result.ratio = programs::median(rounds.ratios);
  if (cell.is_latency()) {
    result.latency_us = rounds.samples.summarize().scaled(lane_.clock().ns_per_tick() / 1000);
  } else {
    result.gb_per_s = programs::median(rounds.figures);
    result.mops_per_s = result.gb_per_s * 1000 / static_cast<double>(cell.bytes);
  }
  return result;
}

Status CellRunner::run_round(std::uint32_t index, std::uint64_t iterations, Rounds& rounds) {
  const Cell& cell = cells_[index];
  double base = 0;
  if (cell.is_latency()) {
    base = machine_.measure_cache_line();
  } else {
    const auto copy = machine_.measure_copy(cell.bytes);
    if (!copy) return copy.error();
    base = copy->alone;
  }
  const auto outcome = run_parts(index, iterations);
  if (!outcome) return outcome.error();

  double figure = 0;
  if (cell.is_latency()) {
    rounds.samples.append(samples_);
    figure = samples_.summarize().p50 * lane_.clock().ns_per_tick();
  } else {
    const double bytes = static_cast<double>(iterations) * static_cast<double>(cell.bytes);
    figure = bytes / std::max(lane_.clock().ns(outcome->elapsed_ticks), 1.0);
    if (outcome->server_elapsed_ns > 0) figure += bytes / static_cast<double>(outcome->server_elapsed_ns);
  }
  rounds.iterations += iterations;
  rounds.figures.push_back(figure);
  rounds.bases.push_back(base);
  if (base > 0) rounds.ratios.push_back(figure / base);
  return {};
}

Result<std::uint64_t> CellRunner::iterations_of_a_round(std::uint32_t index) {
  const Plan& plan = lane_.plan();
  const std::uint64_t most = max_iterations_of_a_round(plan, cells_[index]);
  cut_short_ = false;
  if (plan.iterations != 0) {
    const std::uint64_t each = std::clamp<std::uint64_t>((plan.iterations + plan.rounds - 1) / plan.rounds, 1, most);
    const std::uint64_t few = std::min<std::uint64_t>(each, 100);
    const auto warm_up = run_part(index, few);
    if (!warm_up) return warm_up.error();
    set_part_length(lane_.clock().ns(warm_up->elapsed_ticks), few);
    return each;
  }
  // Longer and longer parts warm up caches and queues, and show how many iterations fit into the time of a round.
  const double wanted_ns = static_cast<double>(plan.duration_us) * 1000 / plan.rounds;
  for (std::uint64_t tried = 4;; tried *= 4) {
    const auto outcome = run_part(index, std::min(tried, most));
    if (!outcome) return outcome.error();
    const double took_ns = std::max(lane_.clock().ns(outcome->elapsed_ticks), 1.0);
    if (took_ns < std::min(wanted_ns, longest_part_ns_) / 8 && tried < most) continue;
    const std::uint64_t probe = std::min(tried, most);
    const auto fastest_ns = fastest_probe(index, probe, took_ns);
    if (!fastest_ns) return fastest_ns.error();
    set_part_length(*fastest_ns, probe);
    const double fitting = std::ceil(wanted_ns / *fastest_ns * static_cast<double>(probe));
    cut_short_ = fitting > static_cast<double>(most);
    return cut_short_ ? most : std::max<std::uint64_t>(static_cast<std::uint64_t>(fitting), 1);
  }
}

/// If other processes had delayed the only probe, all rounds would be too short. A probe with many iterations means a
/// fast operation, and is not delayed as a whole.
Result<double> CellRunner::fastest_probe(std::uint32_t index, std::uint64_t iterations, double took_ns) {
  constexpr int kMore = 3;
  for (int i = 0; i < kMore && iterations < kFewIterations; ++i) {
    const auto outcome = run_part(index, iterations);
    if (!outcome) return outcome.error();
    took_ns = std::min(took_ns, std::max(lane_.clock().ns(outcome->elapsed_ticks), 1.0));
  }
  return took_ns;
}

void CellRunner::set_part_length(double ns, std::uint64_t iterations) {
  const double fitting = longest_part_ns_ / std::max(ns, 1.0) * static_cast<double>(iterations);
  part_iterations_ = static_cast<std::uint64_t>(std::clamp(fitting, 1.0, double{Plan::kMaxIterations}));
}

Result<CellRunner::Outcome> CellRunner::run_parts(std::uint32_t index, std::uint64_t iterations) {
  samples_.clear();
  Outcome all;
  while (iterations > 0) {
    const std::uint64_t some = std::min(iterations, part_iterations_);
    const auto outcome = measure_part(index, some);
    if (!outcome) return outcome.error();
    all.elapsed_ticks += outcome->elapsed_ticks;
    all.server_elapsed_ns += outcome->server_elapsed_ns;
    iterations -= some;
  }
  return all;
}

Result<CellRunner::Outcome> CellRunner::run_part(std::uint32_t index, std::uint64_t iterations) {
  samples_.clear();
  return measure_part(index, iterations);
}

Result<CellRunner::Outcome> CellRunner::measure_part(std::uint32_t index, std::uint64_t iterations) {
  const Cell& cell = cells_[index];
  const Order order{.cell = index, .iterations = static_cast<std::uint32_t>(iterations), .sequence = ++sequence_};
  const auto part = make_part(lane_, cell, order, cell.is_latency() ? &samples_ : nullptr);
  const EndPoint& endpoint = lane_.endpoint();
  if (Status ready = part->prepare(); !ready.ok()) return lane_.with_cause(ready).error();
  if (Status sent = endpoint.send_message(pack(order), Deadline::after(kPatience)); !sent.ok()) return sent.error();
  if (const auto ready = receive<Ready>(kPatience); !ready) return ready.error();
  if (Status done = part->run(); !done.ok()) return lane_.with_cause(done).error();
  if (Status sent = endpoint.send_message(pack(Finish{}), Deadline::after(kPatience)); !sent.ok()) return sent.error();
  const auto theirs = receive<Report>(kPatience);
  if (!theirs) return theirs.error();
  part->finish();
  if (Status checked = check(cell, part->verifier(), *theirs); !checked.ok()) return checked.error();
  return Outcome{.elapsed_ticks = part->elapsed_ticks(), .server_elapsed_ns = theirs->elapsed_ns};
}

Status CellRunner::check(const Cell& cell, const Verifier& mine, const Report& theirs) const {
  if (mine.corrupt() == 0 && theirs.corrupt == 0) return {};
  const std::string& first = mine.corrupt() != 0 ? mine.first_corruption() : theirs.first_corruption;
  return make_error(std::make_error_code(std::errc::io_error),
                    "verification failed: " + cell.to_text() + ": " + std::to_string(mine.corrupt() + theirs.corrupt) +
                        " of " + std::to_string(mine.checked() + theirs.verified) +
                        " checked messages are wrong; the " + (mine.corrupt() != 0 ? "client" : "server") +
                        " found: " + first);
}

template <typename T>
Result<T> CellRunner::receive(std::chrono::seconds patience) {
  const auto bytes = lane_.endpoint().receive_message(Deadline::after(patience));
  if (!bytes) return bytes.error();
  return unpack<T>(*bytes);
}

}  // namespace rdmacomm::benchmark
