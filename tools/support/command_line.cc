#include "support/command_line.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <gflags/gflags.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <functional>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "base/system_call.h"
#include "base/unique_fd.h"

namespace rdmacomm::programs {
namespace {

constexpr std::size_t kMaxFlagFileBytes = 1 << 20;
/// The most flag files and names in the environment, so that files that name each other do not loop for ever.
constexpr int kMaxSources = 100;

Status wrong(const std::string& where, const std::string& what) {
  return make_error(Errc::kInvalidArgument, where.empty() ? what : where + ": " + what);
}

std::optional<gflags::CommandLineFlagInfo> find_flag(std::string name) {
  std::ranges::replace(name, '-', '_');
  gflags::CommandLineFlagInfo info;
  return gflags::GetCommandLineFlagInfo(name.c_str(), &info) ? std::optional(info) : std::nullopt;
}

/// The values that a gflags type allows.
std::string wanted(const std::string& type) {
  if (type == "bool") return "true or false";
  if (type == "int32") return "a whole number from -2147483648 to 2147483647";
  if (type == "uint32") return "a whole number from 0 to 4294967295";
  if (type == "int64") return "a whole number from -2^63 to 2^63 - 1";
  if (type == "uint64") return "a whole number from 0 to 2^64 - 1";
  if (type == "double") return "a number";
  return "another value";
}

Result<std::string> read_flag_file(const std::string& path) {
  const auto cannot = [&](std::error_code why) { return make_error(why, "cannot read the flag file " + path); };
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!file) return cannot(last_system_error());
  std::string text;
  std::array<char, 16384> part{};
  for (;;) {
    const ssize_t got = retry_interrupted([&] { return ::read(file.get(), part.data(), part.size()); });
    if (got < 0) return cannot(last_system_error());
    if (got == 0) break;
    text.append(part.data(), static_cast<std::size_t>(got));
    if (text.size() > kMaxFlagFileBytes) return cannot(std::make_error_code(std::errc::file_too_large));
  }
  if (text.find('\0') != std::string::npos)
    return wrong(path, "it contains a NUL byte, so it is not a flag file").error();
  return text;
}

/// Splits a list of names with commas, the value of one of gflags' own flags.
Result<std::vector<std::string>> names_in(const std::string& value, const std::string& flag, const std::string& where) {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin <= value.size();) {
    const std::size_t end = std::min(value.find(',', begin), value.size());
    names.push_back(value.substr(begin, end - begin));
    if (names.back().empty()) return wrong(where, "--" + flag + '=' + value + ": a name is empty").error();
    begin = end + 1;
  }
  return names;
}

class FlagSetter {
 public:
  FlagSetter(std::string program, const std::map<char, const char*>& letters)
      : program_(std::move(program)), letters_(letters) {}

  Status take(std::span<const std::string> words) {
    std::deque<std::string> left(words.begin(), words.end());
    const auto next = [&left]() -> std::optional<std::string> {
      if (left.empty()) return {};
      std::string word = std::move(left.front());
      left.pop_front();
      return word;
    };
    while (auto word = next()) {
      if (*word == "--") break;
      if (word->size() < 2 || word->front() != '-') {
        arguments_.push_back(std::move(*word));
      } else if (Status set = set_all(*word, "", next); !set.ok()) {
        return set;
      }
    }
    std::ranges::move(left, std::back_inserter(arguments_));
    return {};
  }

  /// Call it after all words.
  Result<std::vector<std::string>> finish() {
    for (const auto& unknown : unknown_) {
      const std::string& name = unknown.first;
      const bool allowed = std::ranges::any_of(
          undefined_ok_, [&name](const std::string& each) { return name == each || name == "no" + each; });
      if (!allowed) return unknown.second;
    }
    return std::move(arguments_);
  }

 private:
  /// Takes the next word as a value, if there is one.
  using Next = std::function<std::optional<std::string>()>;

  /// where  the source of the word; "": the command line
  Status set_all(const std::string& word, const std::string& where, const Next& next) {
    const std::string_view behind = std::string_view(word).substr(1);
    const bool is_letters =
        !behind.empty() && std::ranges::all_of(behind, [this](char c) { return letters_.contains(c); });
    if (!is_letters) return set(word, where, next);
    for (const char letter : behind) {
      if (Status done = set(letters_.at(letter), where, next); !done.ok()) return done;
    }
    return {};
  }

  Status set(std::string_view word, const std::string& where, const Next& next) {
    const std::string_view text = word.substr(word.starts_with("--") ? 2 : 1);
    const std::size_t equals = text.find('=');
    const std::string name(text.substr(0, equals));
    std::optional<std::string> value;
    if (equals != std::string_view::npos) value = text.substr(equals + 1);
    auto flag = find_flag(name);
    if (!flag && name.starts_with("no")) {
      flag = find_flag(name.substr(2));
      if (flag && (flag->type != "bool" || value)) {
        return wrong(where,
                     std::string(word) + ": \"no\" works only with options that are on or off, and takes no value");
      }
      value = "false";
    }
    if (!flag) {
      const Status unknown =
          wrong(where, "there is no option \"" + std::string(word.substr(0, word.find('='))) + "\"; see --help");
      unknown_.emplace_back(name, unknown.error());
      return {};
    }
    if (!value) value = flag->type == "bool" ? std::optional<std::string>("true") : next();
    if (!value) return wrong(where, std::string(word) + " needs a value; see --help");
    return assign(*flag, name, *value, where);
  }

  /// name  as written by the user
  Status assign(const gflags::CommandLineFlagInfo& flag, const std::string& name, const std::string& value,
                const std::string& where) {
    if (flag.name == "flagfile" || flag.name == "fromenv" || flag.name == "tryfromenv" || flag.name == "undefok") {
      if (value.empty()) return {};
      const auto names = names_in(value, flag.name, where);
      if (!names) return names.error();
      for (const std::string& each : *names) {
        if (Status done = include(flag.name, each, where); !done.ok()) return done;
      }
    } else if (gflags::SetCommandLineOption(flag.name.c_str(), value.c_str()).empty()) {
      return wrong(where, "--" + name + '=' + value + ": this must be " + wanted(flag.type) + "; see --help");
    }
    return {};
  }

  Status include(const std::string& flag, const std::string& name, const std::string& where) {
    if (flag == "undefok") {
      undefined_ok_.push_back(name);
      return {};
    }
    if (++sources_ > kMaxSources) {
      return wrong(where, "--" + flag + '=' + name + ": more than " + std::to_string(kMaxSources) +
                              " flag files and environment variables; check whether flag files include each other");
    }
    return flag == "flagfile" ? take_file(name, where) : take_environment(name, where, flag == "fromenv");
  }

  Status take_environment(const std::string& name, const std::string& where, bool must_be_set) {
    const auto flag = find_flag(name);
    if (!flag) {
      unknown_.emplace_back(name, wrong(where, "there is no option \"--" + name + "\"; see --help").error());
      return {};
    }
    const std::string variable = "FLAGS_" + flag->name;
    const char* const value = ::secure_getenv(variable.c_str());
    if (value != nullptr) return assign(*flag, name, value, "the environment variable " + variable);
    return must_be_set ? wrong(where, "--fromenv=" + name + ": " + variable + " is not set in the environment")
                       : Status();
  }

  Status take_file(const std::string& path, const std::string& where) {
    const auto text = read_flag_file(path);
    if (!text) return where.empty() ? text.error() : make_error(text.code(), where + ": " + text.error().context);
    bool is_for_this_program = true;
    bool in_names = false;
    std::size_t number = 0;
    for (std::size_t begin = 0; begin < text->size();) {
      const std::size_t end = std::min(text->find('\n', begin), text->size());
      const std::string_view line = trimmed(std::string_view(*text).substr(begin, end - begin));
      begin = end + 1;
      ++number;
      if (line.empty() || line.front() == '#') continue;
      if (line.front() != '-') {
        // A program name contains no "=". A line with "=" that was taken for one would silently end the lines for this
        // program.
        const bool is_option = line.find('=') != std::string_view::npos;
        if (is_option) {
          return wrong(
              path + " line " + std::to_string(number),
              '"' + std::string(line) + "\" is neither an option, which begins with --, nor a list of program names");
        }
        is_for_this_program = (std::exchange(in_names, true) && is_for_this_program) || names_this_program(line);
        continue;
      }
      in_names = false;
      if (!is_for_this_program) continue;
      const auto none = []() -> std::optional<std::string> { return {}; };
      if (Status done = set_all(std::string(line), path + " line " + std::to_string(number), none); !done.ok())
        return done;
    }
    return {};
  }

  /// Removes leading blanks, and the '\r' of lines from other systems.
  static std::string_view trimmed(std::string_view line) {
    line.remove_prefix(std::min(line.find_first_not_of(" \t\r\v\f"), line.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    return line;
  }

  /// line  patterns of program names, separated by blanks
  [[nodiscard]] bool names_this_program(std::string_view line) const {
    const std::string short_name = program_.substr(program_.rfind('/') + 1);
    while (!line.empty()) {
      const std::size_t end = std::min(line.find(' '), line.size());
      const std::string pattern(line.substr(0, end));
      line.remove_prefix(std::min(end + 1, line.size()));
      if (::fnmatch(pattern.c_str(), program_.c_str(), FNM_PATHNAME) == 0) return true;
      if (::fnmatch(pattern.c_str(), short_name.c_str(), FNM_PATHNAME) == 0) return true;
    }
    return false;
  }

  const std::string program_;
  const std::map<char, const char*>& letters_;
  std::vector<std::string> arguments_;
  std::vector<std::string> undefined_ok_;
  std::vector<std::pair<std::string, Error>> unknown_;  // flags that do not exist, with the error of each
  int sources_ = 0;
};

}  // namespace

Result<std::vector<std::string>> set_flags(std::span<const std::string> words,
                                           const std::map<char, const char*>& letters) {
  if (words.empty()) return std::vector<std::string>();
  FlagSetter setter(words.front(), letters);
  if (Status taken = setter.take(words.subspan(1)); !taken.ok()) return taken.error();
  return setter.finish();
}

}  // namespace rdmacomm::programs
