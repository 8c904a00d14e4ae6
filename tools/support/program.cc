#include "support/program.h"

#include <gflags/gflags.h>
#include <glog/logging.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "base/printable.h"
#include "rdmacomm/version.h"
#include "support/command_line.h"
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

/// Options as the library's errors name them, and the flags that set them.
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kFlagOfOption = {{
    {"DeviceOptions::name", "--device"},
    {"DeviceOptions::port", "--ib-port"},
    {"DeviceOptions::gid_type", "--gid-type"},
    {"DeviceOptions::gid_index", "--gid-index"},
    {"ConnectorKind::kTcp", "--connector=tcp"},
    {"ConnectorKind::kCm", "--connector=cm"},
}};

std::string with_flags(std::string text) {
  for (const auto& [option, flag] : kFlagOfOption) {
    for (std::size_t at = 0; (at = text.find(option, at)) != std::string::npos; at += flag.size()) {
      text.replace(at, option.size(), flag);
    }
  }
  return text;
}

/// gflags prints a double with all its digits: 0.10000000000000001.
std::string default_text(const gflags::CommandLineFlagInfo& info) {
  if (info.type != "double") return info.default_value;
  std::ostringstream text;
  text << std::stod(info.default_value);
  return text.str();
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(std::move(word));
  return words;
}

/// Appends `line` and `words` in lines for a terminal of 80 columns. All lines after the first one are
/// indented.
void append_wrapped(std::string& text, std::string line, const std::vector<std::string>& words, std::size_t indent) {
  constexpr std::size_t kWidth = 79;
  for (const std::string& word : words) {
    if (line.size() + word.size() > kWidth) {
      text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
      line.assign(indent, ' ');
    }
    line += word + ' ';
  }
  text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
}

/// Appends paragraphs, each of which is one line of `paragraphs`. Lines that begin with a blank stay as they are.
void append_paragraphs(std::string& text, const std::string& paragraphs) {
  std::istringstream lines(paragraphs);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(' ')) {
      text += line + '\n';
    } else {
      append_wrapped(text, "", words_of(line), 0);
    }
  }
}

/// "  --queue-depth=N         description"; below the option if that is longer than the first column.
void append_flag(std::string& text, const HelpFlag& flag) {
  constexpr std::size_t kSecondColumn = 28;
  const gflags::CommandLineFlagInfo info = gflags::GetCommandLineFlagInfoOrDie(flag.name);
  std::string line = "  --" + with_dashes(flag.name) + (*flag.value != '\0' ? std::string("=") + flag.value : "");
  if (line.size() + 2 > kSecondColumn) {
    text += line + '\n';
    line.clear();
  }
  line.resize(kSecondColumn, ' ');
  std::vector<std::string> words = words_of(flag.about != nullptr ? flag.about : info.description);
  if (!info.default_value.empty() && info.type != "bool") words.push_back("(default " + default_text(info) + ")");
  append_wrapped(text, std::move(line), words, kSecondColumn);
}

bool is_on(const char* flag) {
  return gflags::GetCommandLineFlagInfoOrDie(flag).current_value == "true";
}

/// Whether gflags must print something of its own, as for --helpxml.
bool asks_gflags() {
  const auto is_set = [](const char* flag) { return !gflags::GetCommandLineFlagInfoOrDie(flag).current_value.empty(); };
  return is_on("helpxml") || is_on("helppackage") || is_set("helpon") || is_set("helpmatch") ||
         is_set("tab_completion_word");
}

/// The help of gflags itself prints the values of all flags unchanged, and a flag file may come from another user.
void make_values_printable() {
  std::vector<gflags::CommandLineFlagInfo> flags;
  gflags::GetAllFlags(&flags);
  for (const auto& flag : flags) {
    const std::string shown = printable(flag.current_value, std::string::npos);
    if (shown != flag.current_value) gflags::SetCommandLineOption(flag.name.c_str(), shown.c_str());
  }
}

}  // namespace

const std::string& program_name() {
  return mutable_program_name();
}

std::string help_text(const Help& help) {
  std::string text = std::string("usage: ") + help.usage + "\n\n";
  append_paragraphs(text, help.purpose);
  for (const Help::Group& group : help.groups) {
    text += std::string("\n") + group.title + ":\n";
    for (const HelpFlag& flag : group.flags) append_flag(text, flag);
  }
  text += '\n';
  append_paragraphs(text, help.closing);
  return text;
}

std::optional<int> start(int argc, char** argv, const Help& help, std::vector<std::string>* words) {
  set_up_process();
  set_up_standard_output();
  const std::string_view path = argc > 0 ? argv[0] : "rdmacomm";
  mutable_program_name() = path.substr(path.rfind('/') + 1);
  gflags::SetVersionString(version());
  gflags::SetUsageMessage(help.usage);
  gflags::SetArgv(argc, const_cast<const char**>(argv));
  std::map<char, const char*> letters = help.letters;
  letters.emplace('h', "--help");
  auto arguments = set_flags(std::vector<std::string>(argv, argv + argc), letters);
  if (!arguments) return exit_status(arguments.status());
  if (is_on("help") || is_on("helpfull") || is_on("helpshort")) {
    std::cout << help_text(help);
    return exit_status({});
  }
  if (is_on("version")) {
    std::cout << program_name() << " version " << version() << '\n';
    return exit_status({});
  }
  if (asks_gflags()) {
    make_values_printable();
    gflags::HandleCommandLineHelpFlags();
  }
  if (words != nullptr) {
    *words = std::move(*arguments);
  } else if (!arguments->empty()) {
    say("unexpected argument \"" + arguments->front() + "\"; options begin with --, see --help");
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
  return with_flags(failure.code() == Errc::kAborted ? failure.error().context : failure.message());
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
