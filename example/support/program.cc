#include "support/program.h"

#include <gflags/gflags.h>

#include <algorithm>
#include <iostream>
#include <span>
#include <sstream>
#include <string_view>
#include <utility>

#include "rdmacomm/base/log.h"
#include "rdmacomm/base/printable.h"
#include "support/crash_trace.h"
#include "support/process_setup.h"
#include "support/standard_output.h"

namespace rdmacomm::programs {
namespace {

std::string& mutable_program_name() {
  static std::string name = "rdmacomm";
  return name;
}

std::string with_dashes(std::string name) {
  std::ranges::replace(name, '_', '-');
  return name;
}

/// gflags shows a double with all its digits: 0.10000000000000001.
std::string default_text(const gflags::CommandLineFlagInfo& info) {
  if (info.type != "double") return info.default_value;
  std::ostringstream text;
  text << std::stod(info.default_value);
  return text.str();
}

/// "  --queue-depth=N    what it is", wrapped to 100 columns under the second column.
void append_flag(std::string& text, const HelpFlag& flag) {
  constexpr std::size_t kSecondColumn = 28;
  constexpr std::size_t kWidth = 100;
  const gflags::CommandLineFlagInfo info = gflags::GetCommandLineFlagInfoOrDie(flag.name);
  std::string line = "  --" + with_dashes(flag.name) + (*flag.value != '\0' ? std::string("=") + flag.value : "");
  line.resize(std::max(line.size() + 2, kSecondColumn), ' ');
  std::string about = flag.about != nullptr ? flag.about : info.description;
  if (!info.default_value.empty() && info.type != "bool") about += " (default " + default_text(info) + ")";
  std::istringstream words(about);
  for (std::string word; words >> word;) {
    if (line.size() + word.size() > kWidth) {
      text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
      line.assign(kSecondColumn, ' ');
    }
    line += word + ' ';
  }
  text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
}

bool is_on(const char* flag) {
  return gflags::GetCommandLineFlagInfoOrDie(flag).current_value == "true";
}

/// The arguments with "-ra" as "--recursive" and "--archive". Words of other letters are gflags' own; behind "--" are no flags.
std::vector<std::string> spell_out(std::span<char* const> arguments, std::map<char, const char*> letters) {
  letters.emplace('h', "--help");
  std::vector<std::string> words;
  bool flags = false;  // the first is the program's name
  for (const std::string_view word : arguments) {
    const bool is_letters = flags && word.size() > 1 && word[0] == '-' &&
                            std::ranges::all_of(word.substr(1), [&](char c) { return letters.contains(c); });
    if (is_letters) {
      for (const char letter : word.substr(1)) words.emplace_back(letters.at(letter));
    } else {
      words.emplace_back(word);
    }
    flags = words.size() == 1 || (flags && word != "--");
  }
  return words;
}

/// The flag that a word of the command line sets; empty: there is no such flag.
std::optional<gflags::CommandLineFlagInfo> flag_of(std::string_view word) {
  word.remove_prefix(word.starts_with("--") ? 2 : 1);
  std::string name(word.substr(0, word.find('=')));
  std::ranges::replace(name, '-', '_');
  gflags::CommandLineFlagInfo info;
  return gflags::GetCommandLineFlagInfo(name.c_str(), &info) ? std::optional(info) : std::nullopt;
}

/// gflags prints a word as it is if it is a flag that there is not, or a value where the flag wants a number: no such word may have
/// characters that steer a terminal. Returns  kInvalidArgument: one has
Status check_words(const std::vector<std::string>& words) {
  enum class Next : std::uint8_t { kAny, kText, kNumber };
  Next next = Next::kAny;  // kText, kNumber: the value of the flag before it
  for (std::size_t i = 1; i < words.size() && words[i] != "--"; ++i) {
    const std::string& word = words[i];
    const Next due = std::exchange(next, Next::kAny);
    bool named = due == Next::kNumber;
    if (due == Next::kAny && word.starts_with('-')) {
      const auto flag = flag_of(word);
      named = !flag || flag->type != "string";
      const bool wants_value = flag && flag->type != "bool" && word.find('=') == std::string::npos;
      if (wants_value) next = named ? Next::kNumber : Next::kText;
    }
    if (named && printable(word, std::string::npos) != word) {
      return make_error(Errc::kInvalidArgument,
                        '"' + word + "\" has characters that cannot be printed, and is no option; see --help");
    }
  }
  return {};
}

}  // namespace

const std::string& program_name() {
  return mutable_program_name();
}

std::string help_text(const Help& help) {
  std::string text = std::string("usage: ") + help.usage + "\n\n" + help.purpose + '\n';
  for (const Help::Group& group : help.groups) {
    text += std::string("\n") + group.title + ":\n";
    for (const HelpFlag& flag : group.flags) append_flag(text, flag);
  }
  if (*help.closing != '\0') text += std::string("\n") + help.closing + '\n';
  return text;
}

std::optional<int> start(int argc, char** argv, const Help& help, std::vector<std::string>* words) {
  set_up_process();
  set_up_standard_output();
  const std::string_view path = argc > 0 ? argv[0] : "rdmacomm";
  mutable_program_name() = path.substr(path.rfind('/') + 1);
  gflags::SetVersionString(RDMACOMM_VERSION);
  std::vector<std::string> arguments = spell_out({argv, static_cast<std::size_t>(argc)}, help.letters);
  if (const Status printed = check_words(arguments); !printed.ok()) return exit_status(printed);
  std::vector<char*> pointers;
  for (std::string& each : arguments) pointers.push_back(each.data());
  pointers.push_back(nullptr);
  int count = static_cast<int>(arguments.size());
  char** rest = pointers.data();
  gflags::ParseCommandLineNonHelpFlags(&count, &rest, /*remove_flags=*/true);
  if (is_on("help") || is_on("helpfull") || is_on("helpshort")) {
    std::cout << help_text(help);
    return exit_status({});
  }
  if (is_on("version")) {
    std::cout << program_name() << " version " << RDMACOMM_VERSION << '\n';
    return exit_status({});
  }
  gflags::HandleCommandLineHelpFlags();  // --helpxml and others of its own
  if (words != nullptr) {
    words->assign(rest + 1, rest + count);
  } else if (count > 1) {
    say(std::string("unexpected argument \"") + rest[1] + "\"; options begin with --, see --help");
    return 1;
  }
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv[0]);
  install_crash_trace();
  return std::nullopt;
}

bool is_given(const char* flag) {
  return !gflags::GetCommandLineFlagInfoOrDie(flag).is_default;
}

std::string number_given(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

std::string reason_text(const Status& failure) {
  return failure.code() == Errc::kAborted ? failure.error().context : failure.message();
}

void say(const std::string& text) {
  std::cerr << printable(program_name() + ": " + text, std::string::npos) + '\n' << std::flush;
}

int exit_status(const Status& outcome) {
  const Status written = flush_standard_output();
  const Status& failure = outcome.ok() ? written : outcome;
  if (failure.ok()) return 0;
  say(reason_text(failure));
  return 1;
}

}  // namespace rdmacomm::programs
