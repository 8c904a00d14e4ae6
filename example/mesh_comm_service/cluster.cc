#include "mesh_comm_service/cluster.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>

#include "base/printable.h"
#include "connector/host_text.h"

namespace rdmacomm::mesh {
namespace {

constexpr std::string_view kBlank = " \t\r\n";
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // some editors write it at the start of a UTF-8 file
constexpr std::string_view kClusterFlags[] = {"--cluster", "-cluster"};

Error bad_entry(std::string_view entry, const std::string& why) {
  return make_error(Errc::kInvalidArgument, '"' + printable(entry, 200) + "\" is not a node: " + why);
}

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

/// Splits `text` at the characters of `separators`; empty parts are kept.
std::vector<std::string_view> split(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto end = text.find_first_of(separators);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::optional<int> number_in(std::string_view text, int low, int high) {
  int number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc() || end != text.data() + text.size() || number < low || number > high) return {};
  return number;
}

Result<HostText> parse_entry(std::string_view text) {
  auto parsed = parse_host(text);
  if (!parsed) return bad_entry(text, parsed.error().context);
  return parsed;
}

/// Sets the missing ports, and checks the cluster.
Result<Cluster> complete(const std::vector<HostText>& entries, std::uint16_t port) {
  if (entries.size() < kMinNodes || entries.size() > kMaxNodes) {
    return make_error(Errc::kInvalidArgument, std::to_string(entries.size()) +
                                                  (entries.size() == 1 ? " node" : " nodes") +
                                                  " in the list; a mesh has " + std::to_string(kMinNodes) + " to " +
                                                  std::to_string(kMaxNodes) + " nodes");
  }
  Cluster cluster;
  std::map<std::string, int> portless;
  std::set<std::string> seen;
  for (const HostText& entry : entries) {
    const int given = entry.port ? *entry.port : port + portless[entry.host]++;
    if (given > 65535) return bad_entry(entry.host, "no port up to 65535 is left for it");
    const HostPort node{.host = entry.host, .port = static_cast<std::uint16_t>(given)};
    if (!seen.insert(node.to_text()).second) return bad_entry(node.to_text(), "it is in the list twice");
    cluster.push_back(node);
  }
  return cluster;
}

/// The number of nodes that a line of a host file means, from the words after the host.
Result<int> count_of(const std::vector<std::string_view>& words) {
  int count = 1;
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i].empty()) continue;
    const bool slots = words[i].starts_with("slots=");
    const auto number = number_in(slots ? words[i].substr(6) : "", 1, static_cast<int>(kMaxNodes));
    if (!number)
      return bad_entry(words[i], "only slots=N, with N from 1 to " + std::to_string(kMaxNodes) + ", may follow a host");
    count = *number;
  }
  return count;
}

bool is_cluster_flag(std::string_view argument) {
  return std::ranges::find(kClusterFlags, argument) != std::end(kClusterFlags);
}

bool is_cluster_with_value(std::string_view argument) {
  return argument.starts_with("--cluster=") || argument.starts_with("-cluster=");
}

}  // namespace

Result<Cluster> parse_cluster(std::string_view text, std::uint16_t port) {
  std::vector<HostText> entries;
  const std::string_view list = trimmed(text);
  for (const std::string_view part : split(list, ",")) {
    auto entry = parse_entry(trimmed(part));
    if (!entry) return entry.error();
    entries.push_back(std::move(*entry));
  }
  return complete(entries, port);
}

Result<Cluster> parse_host_file(std::string_view content, std::uint16_t port) {
  if (content.starts_with(kByteOrderMark)) content.remove_prefix(kByteOrderMark.size());
  std::vector<HostText> entries;
  int number = 0;
  for (const std::string_view raw : split(content, "\n")) {
    ++number;
    const std::string_view line = trimmed(raw.substr(0, raw.find('#')));
    if (line.empty()) continue;
    const std::vector<std::string_view> words = split(line, kBlank);
    const auto entry = parse_entry(words.front());
    const auto count = count_of(words);
    for (const Status& read : {entry.status(), count.status()}) {
      if (!read.ok()) return make_error(read.code(), "line " + std::to_string(number) + ": " + read.error().context);
    }
    entries.insert(entries.end(), static_cast<std::size_t>(*count), *entry);
  }
  if (entries.empty()) return make_error(Errc::kInvalidArgument, "it contains no nodes");
  return complete(entries, port);
}

std::vector<std::string> join_cluster_words(const std::vector<std::string>& arguments) {
  std::vector<std::string> joined;
  bool in_list = false;
  for (const std::string& argument : arguments) {
    if (is_cluster_flag(argument)) {
      joined.emplace_back("--cluster=");
      in_list = true;
    } else if (is_cluster_with_value(argument) || !in_list || argument.starts_with('-')) {
      joined.push_back(argument);
      in_list = is_cluster_with_value(argument);
    } else {
      std::string& list = joined.back();
      if (!list.ends_with('=') && !list.ends_with(',')) list += ',';
      list += argument;
    }
  }
  return joined;
}

}  // namespace rdmacomm::mesh
