// program.h - how every program of rdmacomm starts and ends: flags, --help, logging, crash traces, one line for an
// error.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rdmacomm/result.h"

namespace rdmacomm::programs {

/// One flag in the help text. Its default and its description are taken from its gflags definition.
struct HelpFlag {
  const char* name;             ///< as defined, with underscores; shown with dashes; both are accepted
  const char* value;            ///< the text after "=": "HOST", "N"; "" for yes-or-no flags
  const char* about = nullptr;  ///< the description for this program, if the definition's does not fit
};

/// The help text of a program. A value.
struct Help {
  const char* usage;    ///< "ping_pong_test [--role=both] [OPTION...]"
  const char* purpose;  ///< what the program does: a few lines
  struct Group {
    const char* title;
    std::vector<HelpFlag> flags;
  };
  std::vector<Group> groups;
  const char* closing = "";  ///< examples, exit status
  /// {'r', "--recursive"}: -r, also when combined with other letters after one dash. 'h' is --help.
  std::map<char, const char*> letters = {};
};

/// Sets up the process (process_setup.h), parses the flags, sets up logging (glog, to standard error) and installs the
/// crash traces.
///
/// words    receives the arguments that are no flags; nullptr: none are allowed
/// Returns  the exit status if the program must end at once: 0 after --help (on standard output), 1 after one line
///          about an argument, or a line of a flag file, that is no flag or has a wrong value (command_line.h)
[[nodiscard]] std::optional<int> start(int argc, char** argv, const Help& help,
                                       std::vector<std::string>* words = nullptr);

/// Whether the flag is on the command line.
[[nodiscard]] bool is_given(const char* flag);
/// A flag's value in a short form: "0.5", "1e+300".
[[nodiscard]] std::string number_given(double value);

/// The message of a failure. The library names options as in the code, "DeviceOptions::name"; this function replaces
/// them by this program's flags. For a peer that has ended the connection, the message ends with the peer's reason.
[[nodiscard]] std::string reason_text(const Status& failure);

/// Prints "<program>: <text>" as one line on standard error. Characters that control a terminal become '?', because
/// `text` may contain names from other users or from a script.
void say(const std::string& text);

/// The exit status of a program: 0 if `outcome` is ok and all output was written. Otherwise 1, after printing
/// "<program>: <reason_text(outcome)>" as one line on standard error.
[[nodiscard]] int exit_status(const Status& outcome);

/// The help text, as --help prints it.
[[nodiscard]] std::string help_text(const Help& help);

/// "<program>" in messages: the last part of argv[0]; "rdmacomm" before start().
[[nodiscard]] const std::string& program_name();

}  // namespace rdmacomm::programs
