// fault_report.h - the log lines of a plan: at the start the plan with its seed, at the end how often each rule applied.
#pragma once

#include <memory>

#include "softdev/faults/fault_run.h"

namespace rdmacomm::softdev {

/// Logs the plan, which repeats the run. Also logs the counts before the process ends by exit(). Does both once for each
/// run.
void announce_faults(const std::shared_ptr<FaultRun>& run);
/// Logs how often each rule has applied.
void report_faults(const FaultRun& run);

}  // namespace rdmacomm::softdev
