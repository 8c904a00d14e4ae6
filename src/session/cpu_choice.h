// cpu_choice.h - chooses the CPU of a thread that is to be pinned.
// Layer: session, internal.
#pragma once

#include <algorithm>
#include <map>
#include <mutex>
#include <span>
#include <utility>

namespace rdmacomm {

/// Reserves the least-used CPU of a list while it lives; among equals the first one. It counts the choices of the whole
/// process, because otherwise two sessions would pin their threads to the same CPU.
/// Threads: any thread may create and destroy one.
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
  /// Never destroyed, because a session may outlive main().
  static Chosen& chosen() {
    static Chosen& all = *new Chosen();
    return all;
  }

  static constexpr int kNone = -1;
  int cpu_ = kNone;
};

}  // namespace rdmacomm
