#include "support/crash_trace.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RDMACOMM_UNDER_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define RDMACOMM_UNDER_SANITIZER 1
#endif
#endif

#if !defined(RDMACOMM_UNDER_SANITIZER)
#define BACKWARD_HAS_DW 1
#include <backward.hpp>
#include <csignal>
#include <vector>
#endif

namespace rdmacomm::programs {

void install_crash_trace() {
#if !defined(RDMACOMM_UNDER_SANITIZER)
  std::vector<int> signals = backward::SignalHandling::make_default_signals();
  std::erase(signals, SIGXFSZ);  // a file that gets too large is no crash: see set_up_process()
  static const backward::SignalHandling handling(signals);
#endif
}

}  // namespace rdmacomm::programs
