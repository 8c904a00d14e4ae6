// thread_modes.h - every ThreadMode, for parameterized tests.
#pragma once

#include <string>

#include "rdmacomm/config.h"

namespace rdmacomm::testing {

inline std::string thread_mode_name(ThreadMode mode) {
  switch (mode) {
    case ThreadMode::kApplication: return "Application";
    case ThreadMode::kThreadPerChannel: return "PerChannel";
    case ThreadMode::kThreadPerEndPoint: return "PerEndPoint";
    case ThreadMode::kThreadPerCompletionQueue: return "PerQueue";
  }
  return "Unknown";
}

}  // namespace rdmacomm::testing
