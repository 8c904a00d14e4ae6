// report.h - the reports of a process: printed once for each rule and place, counted, and told in its exit status.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "softdev/check/rules.h"
#include "softdev/check/stacks.h"

namespace rdmacomm::softdev::check {

/// One report. Filled, then given to report().
struct Report {
  Rule rule;
  std::string happened;  ///< one sentence
  /// Further lines: a label, a text, and the stack that belongs to it (0: none). The first stack is the place to mend.
  struct Line {
    std::string label;
    std::string text;
    StackId stack = 0;
  };
  std::vector<Line> lines;

  Report& line(std::string label, std::string text, StackId stack = 0) {
    lines.push_back({std::move(label), std::move(text), stack});
    return *this;
  }
};

/// The exit status of a process with reports.
inline constexpr int kFoundStatus = 99;

/// Prints a report, unless it is suppressed, or one of the same rule with the same first stack was printed before, or its
/// rule has had 50 different ones. All are counted.
/// Threads: the caller holds a Locked.
void report(const Report& report);

/// If a report of this rule with this first stack was made before, counts one more and returns true. Spares the hot calls
/// the texts of a report.
/// Threads: the caller holds a Locked.
[[nodiscard]] bool count_again(Rule rule, StackId first);

/// Prints the numbers of reports, if there were any. Returns the exit status of the process: kFoundStatus if something
/// was found, else `status`.
/// Threads: the caller holds a Locked.
[[nodiscard]] int finish_reports(int status);

/// In a child of fork(): its parent prints the reports so far. The caller holds a Locked.
void forget_reports();

}  // namespace rdmacomm::softdev::check
