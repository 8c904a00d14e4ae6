// settings.h - the settings of a context from the environment, see kLateVariable, kTcpVariable, kMemlockVariable,
// kListenVariable and kFaultsVariable.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "softdev/faults/fault_run.h"
#include "softdev/host/target_route.h"
#include "softdev/tcp/tcp_addresses.h"

namespace rdmacomm::softdev {

struct Settings {
  /// Time that requests wait for a poll before they are executed; 0: they do not wait.
  std::chrono::milliseconds lateness{};
  TcpUse tcp_use = TcpUse::kOtherHosts;
  bool limits_memory = true;  ///< registrations respect RLIMIT_MEMLOCK
  /// The addresses at which other hosts may reach the process; no value: all of them.
  std::optional<TcpAddresses> addresses;
  /// nullptr: no faults.
  std::shared_ptr<FaultRun> faults;
};

/// Reads the environment. Returns 0; EINVAL: a variable has an invalid value.
[[nodiscard]] int read_settings(Settings& settings);
/// After EINVAL: the variable, its value and the values that it may have, for an error text. Empty: no value is invalid.
[[nodiscard]] std::string invalid_setting();

}  // namespace rdmacomm::softdev
