#include "softdev/faults/fault_report.h"

#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <string>

#include "base/logging.h"
#include "softdev/common/at_exit.h"

namespace rdmacomm::softdev {

void announce_faults(const std::shared_ptr<FaultRun>& run) {
  static auto& mutex = *new std::mutex;
  static std::shared_ptr<FaultRun>& announced = *new std::shared_ptr<FaultRun>;
  const std::scoped_lock lock(mutex);
  if (announced == run) return;
  announced = run;
  RDMACOMM_LOG(WARNING) << "faults \"" << to_text(run->plan()) << "\"";
  new AtExit([run] { report_faults(*run); });  // lives until the process ends
}

void report_faults(const FaultRun& run) {
  const std::string process = std::string(program_invocation_short_name) + ", process " + std::to_string(getpid());
  for (const FaultRun::RuleCount& one : run.counts()) {
    RDMACOMM_LOG(WARNING) << process << ": this fault applied " << one.times
                          << (one.times == 1 ? " time: " : " times: ") << one.rule;
  }
}

}  // namespace rdmacomm::softdev
