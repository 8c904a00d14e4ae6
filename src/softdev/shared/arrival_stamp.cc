#include "softdev/shared/arrival_stamp.h"

#include <fcntl.h>
#include <unistd.h>

#include <string_view>

#include "base/unique_fd.h"

namespace rdmacomm::softdev {
namespace {

/// True if the kernel reads the time from the time stamp counter of x86. It does not if the counters of two CPUs
/// differ, or if it has another reason to distrust them.
bool kernel_uses_cpu_clock() noexcept {
  const UniqueFd file(open("/sys/devices/system/clocksource/clocksource0/current_clocksource", O_RDONLY | O_CLOEXEC));
  char name[16];
  const ssize_t length = file ? read(file.get(), name, sizeof(name)) : 0;
  return length > 0 && std::string_view(name, static_cast<std::size_t>(length)) == "tsc\n";
}

}  // namespace

Stamping best_stamping() noexcept {
#ifdef __x86_64__
  static const bool by_clock = kernel_uses_cpu_clock();
  if (by_clock) return Stamping::kByClock;
#endif
  return Stamping::kByCounter;
}

}  // namespace rdmacomm::softdev
