// settings.h - what the environment says of a context, see kLateVariable, kTcpVariable and kListenVariable.
#pragma once

#include <chrono>
#include <optional>

#include "softdev/host/target_route.h"
#include "softdev/tcp/tcp_addresses.h"

namespace rdmacomm::softdev {

struct Settings {
  /// How long requests wait for a poll before they are carried out; 0: not at all.
  std::chrono::milliseconds lateness{};
  TcpUse tcp_use = TcpUse::kOtherHosts;
  /// The addresses that other hosts may reach the process at; nothing: all of them.
  std::optional<TcpAddresses> addresses;
};

/// Reads the environment. 0; EINVAL: a variable has a value that it cannot have.
[[nodiscard]] int read_settings(Settings& settings);

}  // namespace rdmacomm::softdev
