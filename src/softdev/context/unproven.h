// unproven.h - connections of processes that have not proven yet that they may share memory.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace rdmacomm::softdev {

/// Limits the number of these connections. The proof takes two packets, so a process that only keeps connections open
/// must make room for others. First the process with the most connections loses one. If each process has only one, the
/// oldest is dropped after kTimeToProve.
/// Threads: one at a time.
class Unproven {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kTimeToProve{1};

  explicit Unproven(std::size_t most) noexcept : most_(most) {}

  /// Adds connection `id` of process `pid`. `id` is greater than all earlier ones.
  void add(std::uint64_t id, pid_t pid, Clock::time_point now) { by_id_.insert_or_assign(id, Connection{pid, now}); }
  /// The connection has proven it, or has ended.
  void remove(std::uint64_t id) { by_id_.erase(id); }

  [[nodiscard]] bool is_full() const noexcept { return by_id_.size() >= most_; }
  /// The connection to drop for a new one. No value: the new one has to wait.
  [[nodiscard]] std::optional<std::uint64_t> gives_way(Clock::time_point now) const {
    if (by_id_.empty()) return {};
    std::map<pid_t, std::size_t> counts;
    for (const auto& [id, one] : by_id_) ++counts[one.pid];
    const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
    const auto [pid, count] = *std::ranges::max_element(counts, fewer);
    if (count == 1) {
      const auto& [id, oldest] = *by_id_.begin();
      return now - oldest.since >= kTimeToProve ? std::optional(id) : std::nullopt;
    }
    return std::ranges::find(by_id_, pid, [](const auto& entry) { return entry.second.pid; })->first;
  }

 private:
  struct Connection {
    pid_t pid;
    Clock::time_point since;
  };
  const std::size_t most_;
  std::map<std::uint64_t, Connection> by_id_;  // the oldest first
};

}  // namespace rdmacomm::softdev
