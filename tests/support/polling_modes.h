// polling_modes.h - all polling modes, for tests that are the same in each of them.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "channel/completion_waiter.h"

namespace rdmacomm::testing {

inline auto every_polling_mode() {
  return ::testing::Values(PollingMode::kBusyPoll, PollingMode::kCompletionChannel, PollingMode::kEpoll,
                           PollingMode::kAdaptive);
}

/// The name of a test instance, for example "CompletionChannel".
inline std::string instance_name(PollingMode mode) {
  std::string name;
  bool capital = true;
  for (const char c : std::string(to_text(mode))) {
    if (c != ' ') name += capital ? static_cast<char>(std::toupper(c)) : c;
    capital = c == ' ';
  }
  return name;
}

}  // namespace rdmacomm::testing
