// report.h - the output of a client: failures, names, progress, and the result.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "rdma_copy/events.h"
#include "rdma_copy/messages.h"
#include "rdmacomm/result.h"
#include "support/progress.h"

namespace rdmacomm::copying {

/// A resource.
/// Threads: events() as described at Events; all other functions on one.
class Report {
 public:
  struct Options {
    std::ostream& out;  ///< names, and the result
    std::ostream& err;  ///< failures and progress
    bool names = false;
    bool progress = false;
    bool json = false;
    bool dry_run = false;
    std::vector<std::string> sources = {};  ///< local ones; they are examined for the total of the progress
    bool recursive = false;                 ///< including the content of directories
    bool one_file = false;                  ///< at most one file is copied: its size is the total
  };
  explicit Report(const Options& options);

  [[nodiscard]] const Events& events() const noexcept { return events_; }
  ~Report();
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;
  /// Prints the result: as JSON with `json`, and, if progress is shown, a summary with amount, rate and failures.
  /// Returns  std::errc::io_error: not all of the output could be written
  [[nodiscard]] Status end(const Counts& counts, const Status& outcome);

 private:
  void entry(const std::string& path, std::uint64_t size);
  void moved(std::uint64_t bytes);
  [[nodiscard]] std::string about(std::size_t room);
  [[nodiscard]] std::string summary(const Counts& counts) const;
  [[nodiscard]] std::string json(const Counts& counts, const Status& outcome) const;

  const Options options_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  Events events_;
  std::mutex mutex_;
  std::string path_;  // the current one
  std::uint64_t size_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t entries_ = 0;
  std::vector<std::string> failures_;  // for the JSON: the first ones
  std::uint64_t failures_left_out_ = 0;
  programs::Progress progress_;  // its thread uses the members above
  std::atomic<bool> over_{false};
  std::thread sizing_;
};

}  // namespace rdmacomm::copying
