#include "mesh_comm_service/job_environment.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/printable.h"

namespace rdmacomm::mesh {
namespace {

constexpr int kMaxCount = static_cast<int>(kMaxNodes);

Error bad(const std::string& what, const std::string& value) {
  return make_error(Errc::kInvalidArgument, what + " has an invalid value: \"" + printable(value, 200) + '"');
}

std::optional<int> to_number(std::string_view text) {
  int number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc() || end != text.data() + text.size() || number < 0) return {};
  return number;
}

/// The value of a variable; empty if it is not set.
std::string text_of(const Environment& environment, const char* name) {
  const char* const value = environment(name);
  return value != nullptr ? value : "";
}

/// The names of the variables that a launcher sets.
struct Names {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_size;  ///< processes on this host; nullptr: the launcher does not set it
};
constexpr Names kNames[] = {
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", nullptr},
};

Result<int> read_number(const Environment& environment, const char* name, int most) {
  const std::string value = text_of(environment, name);
  const auto number = to_number(value);
  if (!number || *number > most) return bad(name, value);
  return *number;
}

/// "3(x2)": 3, twice.
Result<std::pair<int, int>> read_repeated(std::string_view part) {
  const auto open = part.find("(x");
  const bool closed = open == std::string_view::npos || part.ends_with(')');
  const auto value = to_number(part.substr(0, open));
  const auto times =
      open == std::string_view::npos ? 1 : to_number(part.substr(open + 2, part.size() - open - (closed ? 3 : 2)));
  if (!closed || !value || !times || *value > kMaxCount || *times > kMaxCount)
    return bad("a count of tasks", std::string(part));
  return std::pair(*value, *times);
}

/// The digits of `number`, padded with zeroes to `width`.
std::string padded(int number, std::size_t width) {
  const std::string digits = std::to_string(number);
  return std::string(width > digits.size() ? width - digits.size() : 0, '0') + digits;
}

/// "01-03" or "7", the text inside brackets: 01, 02, 03.
Status expand_range(std::string_view range, std::vector<std::string>& numbers) {
  const auto dash = range.find('-');
  const std::string_view low_text = range.substr(0, dash);
  const auto low = to_number(low_text);
  const auto high = dash == std::string_view::npos ? low : to_number(range.substr(dash + 1));
  if (!low || !high || *high < *low || *high - *low >= kMaxCount) {
    return bad("a range of hosts", std::string(range));
  }
  for (int number = *low; number <= *high; ++number) numbers.push_back(padded(number, low_text.size()));
  return {};
}

/// "1-3,7", the text inside brackets: 1, 2, 3, 7.
Result<std::vector<std::string>> expand_ranges(std::string_view ranges) {
  std::vector<std::string> numbers;
  for (;;) {
    const auto comma = ranges.find(',');
    if (Status done = expand_range(ranges.substr(0, comma), numbers); !done.ok()) return done.error();
    if (numbers.size() > kMaxNodes) return bad("a list of hosts", std::string(ranges));
    if (comma == std::string_view::npos) return numbers;
    ranges.remove_prefix(comma + 1);
  }
}

/// One element of a host list: "login", or "node[1-3,7]-ib", or "rack[1-2]node[1-4]"; the last number changes fastest.
Result<std::vector<std::string>> expand_element(std::string_view element) {
  std::vector<std::string> hosts = {""};
  for (;;) {
    const auto open = element.find('[');
    for (std::string& host : hosts) host += element.substr(0, open);
    if (open == std::string_view::npos) return hosts;
    const auto close = element.find(']', open);
    if (close == std::string_view::npos) return bad("a list of hosts", std::string(element));
    const auto numbers = expand_ranges(element.substr(open + 1, close - open - 1));
    if (!numbers) return numbers.error();
    if (hosts.size() * numbers->size() > kMaxNodes) return bad("a list of hosts", std::string(element));
    std::vector<std::string> longer;
    for (const std::string& host : hosts) {
      for (const std::string& number : *numbers) longer.push_back(host + number);
    }
    hosts = std::move(longer);
    element.remove_prefix(close + 1);
  }
}

/// Whether ranks follow the hosts in the order of the list, with all tasks of a host together. That is "block", Slurm's
/// default. ("block:cyclic" and similar values concern cores.)
bool ranks_follow_hosts(std::string_view distribution, const std::vector<int>& tasks) {
  const std::string_view over_hosts = distribution.substr(0, distribution.find_first_of(":,"));
  if (over_hosts.empty() || over_hosts == "block" || over_hosts == "*") return true;
  return over_hosts == "cyclic" && std::ranges::all_of(tasks, [](int count) { return count == 1; });
}

/// The hosts of a Slurm job, each repeated for each of its tasks; empty if Slurm does not list them.
Result<std::vector<std::string>> slurm_hosts(const Environment& environment) {
  const auto first_of = [&](const char* one, const char* other) {
    return environment(one) != nullptr ? environment(one) : environment(other);
  };
  const char* const list = first_of("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST");
  const char* const tasks = first_of("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE");
  if (list == nullptr) return std::vector<std::string>();
  const auto hosts = expand_host_list(list);
  if (!hosts) return hosts.error();
  const auto counts = expand_task_counts(tasks != nullptr ? tasks : "1(x" + std::to_string(hosts->size()) + ")");
  if (!counts) return counts.error();
  if (counts->size() != hosts->size()) return bad("Slurm's number of tasks per node", tasks != nullptr ? tasks : "");
  const std::string distribution = text_of(environment, "SLURM_DISTRIBUTION");
  if (!ranks_follow_hosts(distribution, *counts)) {
    return make_error(Errc::kInvalidArgument,
                      "SLURM_DISTRIBUTION is \"" + printable(distribution, 64) +
                          "\", so the ranks do not follow the list of hosts; use srun "
                          "--distribution=block, or give the nodes with --cluster or --hostfile");
  }
  std::vector<std::string> all;
  for (std::size_t i = 0; i < hosts->size(); ++i)
    all.insert(all.end(), static_cast<std::size_t>((*counts)[i]), (*hosts)[i]);
  return all;
}

}  // namespace

Result<std::optional<Job>> find_job(const Environment& environment) {
  for (const Names& names : kNames) {
    if (environment(names.rank) == nullptr || environment(names.size) == nullptr) continue;
    const auto rank = read_number(environment, names.rank, kMaxCount);
    if (!rank) return rank.error();
    const auto size = read_number(environment, names.size, kMaxCount);
    if (!size) return size.error();
    if (*rank >= *size) return bad(names.rank, environment(names.rank));
    const bool all_here = names.local_size != nullptr && to_number(text_of(environment, names.local_size)) == *size;
    return std::optional(Job{.launcher = names.launcher, .rank = *rank, .size = *size, .all_here = all_here});
  }
  return std::optional<Job>();
}

Result<Cluster> find_hosts(const Environment& environment, const Job& job, std::uint16_t port) {
  const auto size = static_cast<std::size_t>(job.size);
  auto hosts = job.all_here ? std::vector<std::string>(size, "127.0.0.1") : slurm_hosts(environment);
  if (!hosts) return hosts.error();
  if (hosts->size() != size) {
    return make_error(Errc::kInvalidArgument, job.launcher + " does not tell on which hosts its " +
                                                  std::to_string(job.size) +
                                                  " processes are; give the nodes with --cluster or --hostfile");
  }
  std::string list;
  for (const std::string& host : *hosts) list += (list.empty() ? "" : ",") + host;
  return parse_cluster(list, port);
}

Result<std::vector<std::string>> expand_host_list(const std::string& list) {
  std::vector<std::string> hosts;
  std::string element;
  int depth = 0;
  for (const char letter : list + ",") {
    depth += letter == '[' ? 1 : letter == ']' ? -1 : 0;
    if (letter != ',' || depth > 0) {
      element += letter;
      continue;
    }
    if (element.empty()) return bad("a list of hosts", list);
    const auto expanded = expand_element(element);
    if (!expanded) return expanded.error();
    hosts.insert(hosts.end(), expanded->begin(), expanded->end());
    if (hosts.size() > kMaxNodes) return bad("a list of hosts", list);
    element.clear();
  }
  if (depth != 0) return bad("a list of hosts", list);
  return hosts;
}

Result<std::vector<int>> expand_task_counts(const std::string& counts) {
  std::vector<int> all;
  int sum = 0;
  std::string_view rest = counts;
  for (;;) {
    const auto comma = rest.find(',');
    const auto repeated = read_repeated(rest.substr(0, comma));
    if (!repeated) return repeated.error();
    const auto [tasks, hosts] = *repeated;
    sum += tasks * hosts;
    if (sum > kMaxCount || all.size() + static_cast<std::size_t>(hosts) > kMaxNodes) {
      return bad("a list of numbers of tasks", counts);
    }
    all.insert(all.end(), static_cast<std::size_t>(hosts), tasks);
    if (comma == std::string_view::npos) return all;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace rdmacomm::mesh
