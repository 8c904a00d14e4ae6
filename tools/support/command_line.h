// command_line.h - sets gflags' flags from the words of the command line, of flag files and of the environment.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "rdmacomm/result.h"

namespace rdmacomm::programs {

/// Sets the flags that the words give, as gflags does, and prints nothing. gflags itself does not see the words,
/// because it prints those that it does not understand as they are, and leaves out such lines of a flag file without an
/// error.
///
/// --flagfile=FILE[,FILE]  stands for the lines of the files: "--name=value"; '#' begins a comment, and lines of
/// program names limit the
///                         lines that follow to these programs; such a name has no "="
/// --fromenv=NAME[,NAME]   stands for --NAME with the value of FLAGS_NAME in the environment; --tryfromenv only if that
/// is set --undefok=NAME[,NAME]   --NAME is left out if there is no such flag
///
/// words    the program's path, and then the command line
/// letters  {'r', "--recursive"}: what "-r" stands for, also with others behind one dash
/// Returns  the words that are no flags; kInvalidArgument: a word, or a line of such a file, is wrong; the context
///          names it and the file, and can hold any character; or the system's error of a file that cannot be read
[[nodiscard]] Result<std::vector<std::string>> set_flags(std::span<const std::string> words,
                                                         const std::map<char, const char*>& letters);

}  // namespace rdmacomm::programs
