// options.h - the settings of the checker, from the environment.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rdmacomm::softdev::check {

/// The settings of a process. softdev-run writes the environment variables, and has checked their words.
struct Options {
  bool pages = false;     ///< protect the pages of buffers in flight
  bool wr_ids = false;    ///< report equal wr_id of requests in flight
  bool capacity = false;  ///< report completion queues that the depths of their queue pairs could overrun
  bool ends = false;      ///< report receives that are posted when their queue pair is destroyed
  bool sleeps = false;    ///< report sleeps that another thread may end by arming a queue
  std::string log;        ///< the file for reports; empty: standard error. %p stands for the process number
  std::vector<std::string> suppressions;  ///< files with suppressions
  std::vector<std::string> unknown;       ///< words of RDMACOMM_CHECK that mean nothing
};

/// Splits a text at a separator. Empty parts are left out.
[[nodiscard]] std::vector<std::string> split(std::string_view text, char separator);

/// The settings of this process. The first call reads the environment. Never destroyed.
/// Threads: any.
[[nodiscard]] const Options& options();

}  // namespace rdmacomm::softdev::check
