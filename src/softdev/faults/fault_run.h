// fault_run.h - a plan of faults at work in this process.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "softdev/faults/fault_plan.h"
#include "softdev/faults/fault_stream.h"

namespace rdmacomm::softdev {

class DeviceFaults;

/// Decides whether one rule applies, occasion by occasion. A value.
/// Threads: one at a time.
class FaultTrigger {
 public:
  FaultTrigger(const FaultWhen& when, std::uint64_t seed, std::uint64_t purpose) noexcept
      : when_(when), stream_(seed, purpose) {}

  /// Counts an occasion. Returns true: the rule applies.
  [[nodiscard]] bool next() noexcept;
  /// For the arguments of the rule.
  [[nodiscard]] FaultStream& stream() noexcept { return stream_; }

 private:
  FaultWhen when_;
  FaultStream stream_;
  std::uint64_t count_ = 0;
};

/// A plan at work. All contexts of the process that were opened under the plan share it.
///
/// Each rule has a counter and a random stream of its own for each queue pair, and rules about calls have one of each
/// for the process. So the decisions depend on the plan and on the order of the requests of each queue pair. They do
/// not depend on the time, on threads, or on other queue pairs.
///
/// Threads: any.
class FaultRun {
 public:
  /// The process, as rules select it.
  struct Process {
    std::string program;
    std::optional<std::uint32_t> rank;  ///< in its job
  };
  /// How often a rule has applied.
  struct RuleCount {
    std::string rule;
    std::uint64_t times;
  };

  /// Draws a seed if the plan has none.
  FaultRun(FaultPlan plan, Process process);
  FaultRun(const FaultRun&) = delete;
  FaultRun& operator=(const FaultRun&) = delete;

  /// The name of this program, and its rank according to the variables that Open MPI, PMI, PMIx and Slurm set.
  [[nodiscard]] static Process this_process();

  [[nodiscard]] const FaultPlan& plan() const noexcept { return plan_; }
  [[nodiscard]] std::uint64_t seed() const noexcept { return seed_; }
  /// The indexes of the rules that this process and this device have, in their order.
  [[nodiscard]] std::vector<std::size_t> rules_for(std::string_view device) const;
  /// The number of the next queue pair of this process, from 1.
  [[nodiscard]] std::uint32_t next_queue_pair() noexcept { return queue_pairs_.fetch_add(1) + 1; }
  /// Counts a call. Returns 0, or the errno value that the call fails with.
  [[nodiscard]] int refusal(FaultCall call, std::string_view device);
  /// Rule `index` has applied.
  void count(std::size_t index) noexcept { applied_[index].fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] std::vector<RuleCount> counts() const;

  // The opened devices, so that all of them see a port that goes down.
  void add(DeviceFaults& device);
  void remove(DeviceFaults& device) noexcept;
  template <typename Function>
  void for_each_device(Function&& function) {
    const std::scoped_lock lock(devices_mutex_);
    for (DeviceFaults* const one : devices_) function(*one);
  }

 private:
  const FaultPlan plan_;
  const Process process_;
  const std::uint64_t seed_;
  std::vector<std::atomic<std::uint64_t>> applied_;  // by the index of the rule
  std::atomic<std::uint32_t> queue_pairs_{0};
  std::mutex calls_mutex_;
  std::vector<FaultTrigger> calls_;  // by the index of the rule
  std::mutex devices_mutex_;
  std::vector<DeviceFaults*> devices_;
};

/// The plan for the contexts that this process opens from now on. Reads kFaultsVariable once, unless set_fault_run() was
/// called. A child of fork() starts the plan from the beginning.
/// run  nullptr: no faults
/// Returns  0; EINVAL: the value of the variable is not valid.
[[nodiscard]] int current_fault_run(std::shared_ptr<FaultRun>& run);
/// True if set_fault_run() has decided it.
[[nodiscard]] bool is_fault_run_set();
/// Replaces it; nullptr: no faults.
void set_fault_run(std::shared_ptr<FaultRun> run);
/// The reason why the value of kFaultsVariable is not valid; empty: it is valid.
[[nodiscard]] std::string invalid_fault_variable();

}  // namespace rdmacomm::softdev
