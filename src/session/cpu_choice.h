// cpu_choice.h - which CPU a thread that is to be pinned gets.
// Layer: session, internal.
#pragma once

#include <algorithm>
#include <map>
#include <mutex>
#include <span>
#include <utility>

namespace rdmacomm {

/// One of several CPUs, from when it is chosen until this goes: of them the one that the fewest others have, and of
/// those the first one. All choices of the process count: of what use is a CPU for each of two sessions' threads, if it
/// is the same one?
/// Threads: any may make one and drop it.
class CpuChoice {
 public:
  CpuChoice() = default;  ///< none
  /// cpus  not empty
  explicit CpuChoice(std::span<const int> cpus) {
    Chosen& all = chosen();
    const std::lock_guard lock(all.mutex);
    cpu_ = *std::ranges::min_element(cpus, {}, [&](int cpu) { return all.times[cpu]; });
    ++all.times[cpu_];
  }
  CpuChoice(CpuChoice&& other) noexcept : cpu_(std::exchange(other.cpu_, kNone)) {}
  CpuChoice& operator=(CpuChoice&& other) noexcept {
    std::swap(cpu_, other.cpu_);
    return *this;
  }
  ~CpuChoice() {
    if (cpu_ == kNone) return;
    Chosen& all = chosen();
    const std::lock_guard lock(all.mutex);
    --all.times[cpu_];
  }

  [[nodiscard]] int cpu() const noexcept { return cpu_; }

 private:
  struct Chosen {
    std::mutex mutex;
    std::map<int, int> times;
  };
  /// Never destroyed: a session may outlive main().
  static Chosen& chosen() {
    static Chosen& all = *new Chosen();
    return all;
  }

  static constexpr int kNone = -1;
  int cpu_ = kNone;
};

}  // namespace rdmacomm
