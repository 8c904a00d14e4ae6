// command_line.h - sets gflags flags from the command line, flag files and the environment.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "rdmacomm/result.h"

namespace rdmacomm::programs {

/// Sets the flags that the words give, as gflags does, and prints nothing. The words are not passed to gflags itself,
/// because it prints unknown words unchanged, and skips such lines of a flag file without an error.
///
/// --flagfile=FILE[,FILE]  reads the lines of the files: "--name=value"; '#' begins a comment, and a line of program
///                         names limits the next lines to these programs; such a name has no "="
/// --fromenv=NAME[,NAME]   sets --NAME to the value of FLAGS_NAME in the environment; --tryfromenv only if that is set
/// --undefok=NAME[,NAME]   ignores --NAME if no such flag exists
///
/// words    the program's path, and then the command line
/// letters  {'r', "--recursive"}: "-r" means "--recursive", also when combined with other letters after one dash
/// Returns  the words that are no flags; kInvalidArgument: a word, or a line of such a file, is wrong; the context
///          names it and the file, and can hold any character; or the system's error for a file that cannot be read
[[nodiscard]] Result<std::vector<std::string>> set_flags(std::span<const std::string> words,
                                                         const std::map<char, const char*>& letters);

}  // namespace rdmacomm::programs
