#include "softdev/faults/fault_run.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "rdmacomm/softdev.h"

namespace rdmacomm::softdev {
namespace {

std::uint64_t draw_seed() noexcept {
  std::uint32_t seed = 0;  // short, so that a user can type it
  if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) == sizeof(seed)) return seed;
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

/// The processes of a job get the same plan. Their random decisions differ if their ranks differ.
std::uint64_t seed_of(const FaultPlan& plan, const FaultRun::Process& process) noexcept {
  constexpr std::uint64_t kRankStep = 0x9e3779b97f4a7c15;
  return *plan.seed + (process.rank ? (*process.rank + 1) * kRankStep : 0);
}

FaultPlan with_seed(FaultPlan plan) noexcept {
  if (!plan.seed) plan.seed = draw_seed();
  return plan;
}

std::string_view variable() noexcept {
  const char* const value = ::secure_getenv(kFaultsVariable);
  return value == nullptr ? "" : value;
}

/// The current run of the process.
struct Current {
  std::mutex mutex;
  pid_t owner = 0;
  bool is_set = false;  ///< by set_fault_run()
  std::shared_ptr<FaultRun> run;
};

Current& current() {
  static auto& one = *new Current;  // never destroyed: other threads may open devices while the process ends
  return one;
}

}  // namespace

bool FaultTrigger::next() noexcept {
  ++count_;
  switch (when_.kind) {
    case FaultWhen::Kind::kAlways: return true;
    case FaultWhen::Kind::kAt: return count_ == when_.first;
    case FaultWhen::Kind::kFrom: return count_ >= when_.first && (when_.last == 0 || count_ <= when_.last);
    case FaultWhen::Kind::kEvery: return count_ % when_.first == 0;
    case FaultWhen::Kind::kChance: break;
  }
  return stream_.below(FaultWhen::kCertain) < when_.chance;
}

FaultRun::FaultRun(FaultPlan plan, Process process)
    : plan_(with_seed(std::move(plan))),
      process_(std::move(process)),
      seed_(seed_of(plan_, process_)),
      applied_(plan_.rules.size()) {
  for (std::size_t i = 0; i < plan_.rules.size(); ++i) calls_.emplace_back(plan_.rules[i].when, seed_, i);
}

FaultRun::Process FaultRun::this_process() {
  Process process{program_invocation_short_name, {}};
  for (const char* const name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    const char* const value = ::secure_getenv(name);
    if (value == nullptr) continue;
    const std::string_view text(value);
    std::uint32_t rank = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
    if (error != std::errc{} || end != text.data() + text.size()) continue;
    process.rank = rank;
    break;
  }
  return process;
}

std::vector<std::size_t> FaultRun::rules_for(std::string_view device) const {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < plan_.rules.size(); ++i) {
    const FaultSelectors& wanted = plan_.rules[i].selectors;
    if (!wanted.device.empty() && wanted.device != device) continue;
    if (!wanted.program.empty() && wanted.program != process_.program) continue;
    if (wanted.rank && wanted.rank != process_.rank) continue;
    found.push_back(i);
  }
  return found;
}

int FaultRun::refusal(FaultCall call, std::string_view device) {
  const std::vector<std::size_t> rules = rules_for(device);
  const std::scoped_lock lock(calls_mutex_);
  int error = 0;
  for (const std::size_t index : rules) {
    const FaultRule& rule = plan_.rules[index];
    if (rule.action != FaultAction::kRefuse || rule.call != call || !calls_[index].next() || error != 0) continue;
    error = rule.error;
    count(index);
  }
  return error;
}

std::vector<FaultRun::RuleCount> FaultRun::counts() const {
  std::vector<RuleCount> all;
  for (std::size_t i = 0; i < plan_.rules.size(); ++i) all.push_back({to_text(plan_.rules[i]), applied_[i].load()});
  return all;
}

void FaultRun::add(DeviceFaults& device) {
  const std::scoped_lock lock(devices_mutex_);
  devices_.push_back(&device);
}

void FaultRun::remove(DeviceFaults& device) noexcept {
  const std::scoped_lock lock(devices_mutex_);
  std::erase(devices_, &device);
}

int current_fault_run(std::shared_ptr<FaultRun>& run) {
  Current& now = current();
  const std::scoped_lock lock(now.mutex);
  const bool is_new_process = std::exchange(now.owner, getpid()) != getpid();
  if (now.is_set) {
    if (is_new_process && now.run != nullptr) {
      now.run = std::make_shared<FaultRun>(now.run->plan(), FaultRun::this_process());
    }
  } else if (is_new_process) {
    now.run = nullptr;
    auto plan = parse_fault_plan(variable());
    if (!plan) {
      now.owner = 0;  // tries again
      return EINVAL;
    }
    if (!plan->rules.empty()) now.run = std::make_shared<FaultRun>(std::move(*plan), FaultRun::this_process());
  }
  run = now.run;
  return 0;
}

void set_fault_run(std::shared_ptr<FaultRun> run) {
  Current& now = current();
  const std::scoped_lock lock(now.mutex);
  now.owner = getpid();
  now.is_set = true;
  now.run = std::move(run);
}

bool is_fault_run_set() {
  Current& now = current();
  const std::scoped_lock lock(now.mutex);
  return now.is_set;
}

std::string invalid_fault_variable() {
  const auto plan = parse_fault_plan(variable());
  return plan ? "" : plan.error().context;
}

}  // namespace rdmacomm::softdev
