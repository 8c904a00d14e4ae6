// refusal_pace.h - which of the processes that do not fit are told to the user.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "rdmacomm/connector/source_network.h"

namespace rdmacomm::mesh {

/// Keeps strangers from filling a node's output: one line for each host (SourceNetwork) in each kPeriod. Hosts beyond kMaxHosts share one.
/// A pure policy: time is passed in. Threads: one at a time.
class RefusalPace {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kPeriod{10};
  static constexpr std::size_t kMaxHosts = 16;

  /// Whether to tell of a refusal.
  ///
  /// peer_address  "10.0.0.2:41234"
  /// Returns       how many of that host have not been told since the last line; empty: this one is not to be told either
  [[nodiscard]] std::optional<std::uint64_t> due(const std::string& peer_address, Clock::time_point now) {
    const SourceNetwork host = SourceNetwork::of(peer_address);
    const bool has_own = by_host_.contains(host) || by_host_.size() < kMaxHosts;
    Line& line = has_own ? by_host_[host] : others_;
    if (line.last && now - *line.last < kPeriod) {
      ++line.untold;
      return {};
    }
    line.last = now;
    return std::exchange(line.untold, 0);
  }

 private:
  struct Line {
    std::optional<Clock::time_point> last = {};
    std::uint64_t untold = 0;
  };

  std::map<SourceNetwork, Line> by_host_;
  Line others_;
};

}  // namespace rdmacomm::mesh
