#include "softdev/check/suppressions.h"

#include <fnmatch.h>

#include <algorithm>

#include "softdev/check/options.h"
#include "softdev/check/rules.h"

namespace rdmacomm::softdev::check {
namespace {

/// docs/check.md repeats this list.
constexpr std::string_view kBuiltIn = R"(
)";

bool matches(const std::string& pattern, const std::string& text) {
  return fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
}

}  // namespace

std::vector<Suppression> parse_suppressions(std::string_view text, const std::string& file,
                                            std::vector<std::string>& errors) {
  std::vector<Suppression> all;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string line(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++number;
    line.resize(std::min(line.size(), line.find('#')));
    std::replace(line.begin(), line.end(), '\t', ' ');
    const std::vector<std::string> words = split(line, ' ');
    if (words.empty()) continue;
    if (words.size() < 2 || words.size() > 3 || !is_rule(words[0])) {
      errors.push_back(file + ":" + std::to_string(number) + ": not \"RULE PROGRAM [OBJECT]\": " + line);
      continue;
    }
    all.push_back({words[0], words[1], words.size() == 3 ? words[2] : std::string()});
  }
  return all;
}

std::string_view built_in_suppressions() noexcept {
  return kBuiltIn;
}

bool is_suppressed(const std::vector<Suppression>& all, std::string_view rule, const std::string& program,
                   const std::vector<std::string>& objects) {
  return std::any_of(all.begin(), all.end(), [&](const Suppression& each) {
    if (each.rule != rule || !matches(each.program, program)) return false;
    return each.object.empty() || std::any_of(objects.begin(), objects.end(),
                                              [&](const std::string& name) { return matches(each.object, name); });
  });
}

}  // namespace rdmacomm::softdev::check
