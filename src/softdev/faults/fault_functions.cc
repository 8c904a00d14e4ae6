// The public functions for faults.
#include <memory>
#include <utility>

#include "rdmacomm/softdev.h"
#include "softdev/faults/fault_run.h"

namespace rdmacomm::softdev {

Status set_faults(std::string_view plan) {
  auto parsed = parse_fault_plan(plan);
  if (!parsed) return make_error(parsed.error().code, "this is not a plan of faults: " + parsed.error().context);
  const bool any = !parsed->rules.empty();
  set_fault_run(any ? std::make_shared<FaultRun>(std::move(*parsed), FaultRun::this_process()) : nullptr);
  return {};
}

std::string faults() {
  std::shared_ptr<FaultRun> run;
  return current_fault_run(run) != 0 || run == nullptr ? "" : to_text(run->plan());
}

std::vector<FaultCount> fault_counts() {
  std::vector<FaultCount> counts;
  std::shared_ptr<FaultRun> run;
  if (current_fault_run(run) != 0 || run == nullptr) return counts;
  for (FaultRun::RuleCount& one : run->counts()) counts.push_back({std::move(one.rule), one.times});
  return counts;
}

}  // namespace rdmacomm::softdev
