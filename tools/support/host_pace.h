// host_pace.h - limits the lines that a server prints about failing clients, so that no host fills its output.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "connector/source_network.h"

namespace rdmacomm::programs {

/// Allows `lines` lines for each host (SourceNetwork) in each kPeriod. At most kMaxHosts hosts at a time are counted
/// separately; all others share one count. A pure policy: the caller passes the time. Threads: one at a time.
class HostPace {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kPeriod{10};
  static constexpr std::size_t kMaxHosts = 16;

  /// lines  for each host in each kPeriod, at least 1
  explicit HostPace(std::uint64_t lines = 1) : lines_(lines) {}

  /// Decides whether to print a line about a client now.
  ///
  /// peer     as EndPoint::peer(): "10.0.0.2:41234 (...)"
  /// text     the line about this client
  /// Returns  `text`, with the number of lines for that host that were suppressed since its last one; empty: do not
  ///          print this line
  [[nodiscard]] std::optional<std::string> line(const std::string& peer, const std::string& text,
                                                Clock::time_point now);
  /// "3 of 10.0.0.2, 7 of other hosts": the suppressed lines that no printed line mentions. Empty: none.
  [[nodiscard]] std::string left_out() const;

 private:
  struct Host {
    Clock::time_point since = {};  // when its period began
    std::uint64_t told = 0;        // lines printed in that period
    std::uint64_t left_out = 0;
  };

  [[nodiscard]] Host* own_line(const SourceNetwork& host, Clock::time_point now);

  const std::uint64_t lines_;
  std::map<SourceNetwork, Host> by_host_;
  std::optional<Host> others_;
};

}  // namespace rdmacomm::programs
