// host_pace.h - which of the clients that fail are told to the user, so that no host fills a server's output.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "connector/source_network.h"

namespace rdmacomm::programs {

/// One line, or as many as the constructor is told, for each host (SourceNetwork) in each kPeriod. At most kMaxHosts
/// hosts at a time have a line of their own; all others share one. A pure policy: time is passed in. Threads: one at a
/// time.
class HostPace {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kPeriod{10};
  static constexpr std::size_t kMaxHosts = 16;

  /// lines  for each host in each kPeriod, at least 1
  explicit HostPace(std::uint64_t lines = 1) : lines_(lines) {}

  /// The line to print about a client now.
  ///
  /// peer     as EndPoint::peer(): "10.0.0.2:41234 (...)"
  /// text     what the line says about this client
  /// Returns  `text`, with the number of that host's clients that were left out since its last line; empty: this one is
  ///          left out, too
  [[nodiscard]] std::optional<std::string> line(const std::string& peer, const std::string& text,
                                                Clock::time_point now);
  /// "3 of 10.0.0.2, 7 of other hosts": the clients that were left out and are in no line. Empty: all are told.
  [[nodiscard]] std::string left_out() const;

 private:
  struct Host {
    Clock::time_point since = {};  // when its period began
    std::uint64_t told = 0;        // in that period
    std::uint64_t left_out = 0;
  };

  [[nodiscard]] Host* own_line(const SourceNetwork& host, Clock::time_point now);

  const std::uint64_t lines_;
  std::map<SourceNetwork, Host> by_host_;
  std::optional<Host> others_;
};

}  // namespace rdmacomm::programs
