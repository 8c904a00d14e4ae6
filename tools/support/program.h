// program.h - how every program of rdmacomm starts and ends: flags, --help, logging, crash traces, one line on errors.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rdmacomm/result.h"

namespace rdmacomm::programs {

/// One flag in the help text. Its default and description come from its gflags definition.
struct HelpFlag {
  const char* name;             ///< as defined, with underscores; shown with dashes, and understood either way
  const char* value;            ///< what stands behind "=": "HOST", "N"; "" for yes-or-no flags
  const char* about = nullptr;  ///< what it is for this program, where the definition's description is of another one
};

/// The help text of a program. A value.
struct Help {
  const char* usage;    ///< "ping_pong_test [--role=both] [OPTION...]"
  const char* purpose;  ///< what it does: a few lines
  struct Group {
    const char* title;
    std::vector<HelpFlag> flags;
  };
  std::vector<Group> groups;
  const char* closing = "";  ///< examples, exit status
  /// {'r', "--recursive"}: -r, also with others behind one dash. 'h' is --help.
  std::map<char, const char*> letters = {};
};

/// Sets the process up (process_setup.h), parses the flags, sets logging up (glog, to standard error) and installs the
/// crash traces.
///
/// words    where arguments that are no flags go; nullptr: there are none to be
/// Returns  the exit status if the program is to end at once: 0 after --help (on standard output), 1 after one line
///          about an argument, or a line of a flag file, that is no flag or has no such value (command_line.h)
[[nodiscard]] std::optional<int> start(int argc, char** argv, const Help& help,
                                       std::vector<std::string>* words = nullptr);

/// Whether the flag is on the command line.
[[nodiscard]] bool is_given(const char* flag);
/// A flag's value as people write it: "0.5", "1e+300".
[[nodiscard]] std::string number_given(double value);

/// The message of a failure, with this program's flags instead of the library's options: the library says what an
/// option is called in a program that sets it, "DeviceOptions::name", and knows no flags. The message of a peer that
/// has given up ends with what the peer says.
[[nodiscard]] std::string reason_text(const Status& failure);

/// Prints "<program>: <text>" as one line on standard error, with '?' for characters that steer a terminal: `text` may
/// name what somebody else chose, or a script passed on.
void say(const std::string& text);

/// How a program ends: 0 where `outcome` is ok and all that was printed is written; else 1, and "<program>: <its
/// reason_text>" is one line on standard error.
[[nodiscard]] int exit_status(const Status& outcome);

/// The help text, as --help prints it.
[[nodiscard]] std::string help_text(const Help& help);

/// "<program>" for messages: the last part of argv[0]; "rdmacomm" before start().
[[nodiscard]] const std::string& program_name();

}  // namespace rdmacomm::programs
