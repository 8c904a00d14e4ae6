// suppressions.h - reports that are expected of some programs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rdmacomm::softdev::check {

/// One line of a file of suppressions: a rule, a pattern for the program's file name, and maybe a pattern for a place
/// that a stack of the report passes through: a function, or the file name of a library. Patterns are those of fnmatch(3).
struct Suppression {
  std::string rule;
  std::string program;
  std::string place;  ///< empty: any
};

/// Reads the lines of a file. "#" begins a comment.
/// errors  gets one line for each line that is not a suppression
[[nodiscard]] std::vector<Suppression> parse_suppressions(std::string_view text, const std::string& file,
                                                          std::vector<std::string>& errors);

/// The suppressions of this library, with their reasons as comments.
[[nodiscard]] std::string_view built_in_suppressions() noexcept;

/// True if a suppression matches.
[[nodiscard]] bool is_suppressed(const std::vector<Suppression>& all, std::string_view rule, const std::string& program,
                                 const std::vector<std::string>& places);

}  // namespace rdmacomm::softdev::check
