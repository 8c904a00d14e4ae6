// progress.h - shows progress: on a terminal once a second, and one line at the end.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <ostream>
#include <string>
#include <thread>

#include "support/display.h"

namespace rdmacomm::programs {

/// "12.3 MB  1.20 GB/s  45 %  0:12 left": bytes so far, the rate, and, if `total` is known, percent and time left.
/// Units are 10^6 and 10^9 bytes, as usual for network rates.
[[nodiscard]] std::string progress_text(std::uint64_t bytes, std::optional<std::uint64_t> total,
                                        double bytes_per_second);
/// "12.3 MB", in the same units.
[[nodiscard]] std::string amount_text(double bytes);
/// "1073741824 bytes in 0.213 s, 5.04 GB/s, processor 0.351 s user 0.102 s system, XXH3 0123456789abcdef"
[[nodiscard]] std::string stats_text(std::uint64_t bytes, double seconds, double user_seconds, double system_seconds,
                                     std::optional<std::uint64_t> checksum);
/// Processor time of this process so far.
struct ProcessorTime {
  double user_seconds = 0;
  double system_seconds = 0;
};
[[nodiscard]] ProcessorTime processor_time();

/// Counts bytes, and shows them on `out` each period, always in the same line. The destructor clears the line.
/// Threads: add(), set_total() and say() from any.
class Progress {
 public:
  struct Options {
    std::ostream& out;
    bool shown = false;  ///< `out` is a terminal, and not switched off. If false, no thread is started
    std::optional<std::uint64_t> total = {};
    std::chrono::milliseconds period{1000};
    /// Text before the numbers, for example the current file, in at most `room` columns. Called from another thread.
    std::function<std::string(std::size_t room)> about = {};
    /// The columns of `out`, to which the line is cut; 0: not known.
    std::function<std::size_t()> columns = [] { return terminal_columns(STDERR_FILENO); };
  };
  explicit Progress(Options options);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  void add(std::uint64_t bytes) noexcept { bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }
  /// Sets the total once it is known.
  void set_total(std::uint64_t bytes) noexcept { total_.store(bytes, std::memory_order_relaxed); }
  /// Prints a separate line: "<program>: <text>".
  void say(const std::string& text);

 private:
  void run();
  [[nodiscard]] std::string line(const std::string& numbers) const;

  const Options options_;
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<std::uint64_t> total_{0};  // 0: not known
  std::mutex mutex_;                     // also guards options_.out
  std::condition_variable changed_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace rdmacomm::programs
