#include "rdmacomm/base/log.h"

#include <cstdlib>

namespace rdmacomm {

int max_vlog_level() noexcept {
  static const int level = [] {
    const char* text = ::secure_getenv("RCL_MAX_VLOG_LEVEL");
    return text == nullptr ? 0 : std::atoi(text);
  }();
  return level;
}

}  // namespace rdmacomm
