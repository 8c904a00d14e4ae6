#include "softdev/check/report.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstddef>
#include <fstream>
#include <map>
#include <sstream>

#include "softdev/check/large_stack.h"
#include "softdev/check/options.h"
#include "softdev/check/suppressions.h"

namespace rdmacomm::softdev::check {
namespace {

constexpr std::size_t kColumns = 80;
constexpr unsigned kMostOfARule = 50;

std::string program_name() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  const std::string whole(path, length < 0 ? 0 : static_cast<std::size_t>(length));
  return whole.substr(whole.rfind('/') + 1);  // npos + 1 is 0
}

std::string prefix() {
  return "check[" + std::to_string(getpid()) + "] ";
}

/// The signal of a pipe that nobody reads. Signals wait inside the checker, and this one must not end the program later.
void drop_sigpipe() {
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  const timespec now{};
  sigtimedwait(&pipe, nullptr, &now);
}

/// Returns false: the file does not take it.
bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EPIPE) drop_sigpipe();
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

std::string log_path() {
  std::string path = options().log;
  const std::string number = std::to_string(getpid());
  for (std::size_t place = path.find("%p"); place != std::string::npos; place = path.find("%p", place + number.size()))
    path.replace(place, 2, number);
  return path;
}

/// Each line begins with the process number. The file is opened for each report, because programs close descriptors.
void print(const std::string& text) {
  std::string prefixed;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) prefixed += prefix() + line + "\n";
  if (!options().log.empty()) {
    const int fd = open(log_path().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd >= 0) {
      const bool is_written = write_all(fd, prefixed);
      close(fd);
      if (is_written) return;
    }
  }
  static_cast<void>(write_all(STDERR_FILENO, prefixed));  // nobody reads the reports
}

/// Breaks a text into lines that are indented by `indent`, except the first.
std::string wrapped(const std::string& text, std::size_t indent) {
  const std::size_t room = kColumns - prefix().size();
  std::string result;
  std::size_t column = indent;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (column > indent && column + 1 + word.size() > room) {
      result += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      result += ' ';
      ++column;
    }
    result += word;
    column += word.size();
  }
  return result;
}

std::vector<Suppression> read_suppressions() {
  std::vector<std::string> errors;
  std::vector<Suppression> all = parse_suppressions(built_in_suppressions(), "built-in", errors);
  for (const std::string& file : options().suppressions) {
    std::ifstream stream(file);
    std::ostringstream text;
    text << stream.rdbuf();
    if (!stream) errors.push_back(file + ": cannot be read, so it suppresses nothing");
    for (Suppression& each : parse_suppressions(text.str(), file, errors)) all.push_back(std::move(each));
  }
  for (const std::string& word : options().unknown) errors.push_back("RDMACOMM_CHECK: unknown word " + word);
  std::string text;
  for (const std::string& error : errors) text += error + "\n";
  if (!text.empty()) print(text);
  return all;
}

struct Reports {
  const std::string program = program_name();
  const std::vector<Suppression> suppressions = read_suppressions();
  std::map<std::pair<Rule, StackId>, bool> is_found;  ///< by rule and first stack; false: suppressed
  std::map<Rule, unsigned> of_rule;                   ///< printed
  std::size_t found = 0;
  std::size_t suppressed = 0;
};

Reports& reports() {
  static auto& all = *new Reports;  // never destroyed: reports are printed when the process ends
  return all;
}

std::string text_of_report(const Report& report) {
  const RuleText& rule = text_of(report.rule);
  std::string text = wrapped(std::string(rule.name) + ": " + report.happened, 2) + "\n";
  for (const Report::Line& line : report.lines) {
    text += "  " + wrapped(line.label + ": " + line.text, 4) + "\n";
    if (line.stack == 0) continue;
    for (const std::string& frame : describe_stack(line.stack)) text += "    " + frame + "\n";
  }
  return text + "  " + wrapped("rule: " + std::string(rule.text), 4) + "\n";
}

/// The libraries and functions that the stacks of a report pass through.
std::vector<std::string> places_of(const Report& report) {
  std::vector<std::string> places;
  for (const Report::Line& line : report.lines) {
    for (std::string& name : objects_of(line.stack)) places.push_back(std::move(name));
    for (const std::string& frame : describe_stack(line.stack)) places.push_back(frame.substr(0, frame.find(' ')));
  }
  return places;
}

}  // namespace

bool count_again(Rule rule, StackId first) {
  Reports& all = reports();
  const auto known = all.is_found.find({rule, first});
  if (known == all.is_found.end()) return false;
  ++(known->second ? all.found : all.suppressed);
  return true;
}

void report(const Report& report) {
  Reports& all = reports();
  const std::pair key(report.rule, report.lines.empty() ? 0 : report.lines.front().stack);
  const auto [place, is_new] = all.is_found.try_emplace(key, false);
  if (is_new) {
    on_large_stack([&] {
      place->second = !is_suppressed(all.suppressions, text_of(report.rule).name, all.program, places_of(report));
      unsigned& printed = all.of_rule[report.rule];
      if (!place->second || printed == kMostOfARule) return;
      ++printed;
      print(text_of_report(report));
    });
  }
  ++(place->second ? all.found : all.suppressed);
}

int finish_reports(int status) {
  Reports& all = reports();
  if (all.found == 0 && all.suppressed == 0) return status;
  std::size_t printed = 0;
  for (const auto& [rule, count] : all.of_rule) printed += count;
  std::string text = std::to_string(all.found) + " found";
  if (printed != all.found) text += ", " + std::to_string(printed) + " of them printed, the others repeat them";
  if (all.suppressed != 0) text += ", " + std::to_string(all.suppressed) + " suppressed";
  if (all.found != 0) text += "; exit status " + std::to_string(kFoundStatus) + " instead of " + std::to_string(status);
  print(text + "\n");
  return all.found != 0 ? kFoundStatus : status;
}

void forget_reports() {
  Reports& all = reports();
  all.is_found.clear();
  all.of_rule.clear();
  all.found = all.suppressed = 0;
}

}  // namespace rdmacomm::softdev::check
