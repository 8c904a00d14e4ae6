#include "softdev/check/options.h"

#include <cstdlib>

namespace rdmacomm::softdev::check {
namespace {

std::string variable(const char* name) {
  const char* const value = secure_getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

Options read_environment() {
  Options read;
  for (std::string& word : split(variable("RDMACOMM_CHECK"), ',')) {
    if (word == "pages") {
      read.pages = true;
    } else if (word == "wr-ids") {
      read.wr_ids = true;
    } else if (word == "capacity") {
      read.capacity = true;
    } else if (word == "ends") {
      read.ends = true;
    } else if (word == "sleeps") {
      read.sleeps = true;
    } else if (word != "on") {
      read.unknown.push_back(std::move(word));
    }
  }
  read.log = variable("RDMACOMM_CHECK_LOG");
  read.suppressions = split(variable("RDMACOMM_CHECK_SUPPRESSIONS"), ':');
  return read;
}

}  // namespace

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = text.find(separator);
    const std::string_view part = text.substr(0, end);
    if (!part.empty()) parts.emplace_back(part);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return parts;
}

const Options& options() {
  static const auto& read = *new Options(read_environment());
  return read;
}

}  // namespace rdmacomm::softdev::check
