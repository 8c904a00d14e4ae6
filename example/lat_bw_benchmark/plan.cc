#include "lat_bw_benchmark/plan.h"

#include <algorithm>
#include <array>

#include "base/printable.h"
#include "support/sizes.h"

namespace rdmacomm::benchmark {
namespace {

constexpr std::array<const char*, 4> kTestNames = {"lat", "bw", "bibw", "rate"};
constexpr std::array<const char*, 6> kOpNames = {"send", "write", "write_imm", "read", "fetch_add", "compare_swap"};
constexpr std::array<const char*, 2> kBufferNames = {"one", "roundrobin"};
constexpr std::array<const char*, 5> kMetricNames = {"half-rt", "post-done", "one-way", "both-ways", "rate"};

/// Round robin uses at most this much memory. More would only measure cache misses.
constexpr std::uint64_t kRoundRobinBytes = std::uint64_t{32} << 20;

template <std::size_t N>
std::string all_of(const std::array<const char*, N>& names) {
  std::string text;
  for (const char* name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

/// The index of `text` among `names`.
template <std::size_t N>
Result<std::size_t> find_name(std::string_view text, const std::array<const char*, N>& names) {
  const auto found = std::ranges::find(names, text);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  return make_error(Errc::kInvalidArgument, '"' + printable(text, 64) + "\" is not one of " + all_of(names));
}

/// Parses a list of names. Returns each one once, in the order of `names`.
template <typename T, std::size_t N>
Result<std::vector<T>> parse_list(std::string_view text, const std::array<const char*, N>& names) {
  std::array<bool, N> chosen{};
  if (text == "all") chosen.fill(true);
  for (std::string_view rest = text; text != "all";) {
    const auto comma = rest.find(',');
    const auto index = find_name(rest.substr(0, comma), names);
    if (!index) return index.error();
    chosen[*index] = true;
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  std::vector<T> list;
  for (std::size_t i = 0; i < N; ++i) {
    if (chosen[i]) list.push_back(static_cast<T>(i));
  }
  return list;
}

Status check_range(const char* what, std::uint64_t value, std::uint64_t low, std::uint64_t high) {
  if (value >= low && value <= high) return {};
  return make_error(Errc::kInvalidArgument, std::string(what) + " is " + std::to_string(value) + "; possible are " +
                                                std::to_string(low) + " to " + std::to_string(high));
}

/// The metrics that a test measures for an operation.
std::vector<Metric> metrics_of(TestKind test, Op op) {
  const bool has_half_round_trip = op == Op::kSend || op == Op::kWrite || op == Op::kWriteImm;
  const bool completes_at_target = op == Op::kWrite || op == Op::kRead || is_atomic(op);
  std::vector<Metric> metrics;
  switch (test) {
    case TestKind::kLat:
      if (has_half_round_trip) metrics.push_back(Metric::kHalfRoundTrip);
      if (completes_at_target) metrics.push_back(Metric::kCompletion);
      break;
    case TestKind::kBw:
      if (!is_atomic(op)) metrics.push_back(Metric::kOneWay);
      break;
    case TestKind::kBiBw:
      if (!is_atomic(op)) metrics.push_back(Metric::kBothWays);
      break;
    case TestKind::kRate: metrics.push_back(Metric::kRate); break;
  }
  return metrics;
}

/// Writes a list of enumerators: a count, then one byte for each.
template <typename T>
void put_list(WireWriter& writer, const std::vector<T>& list) {
  writer.put(static_cast<std::uint8_t>(list.size()));
  for (const T item : list) writer.put(static_cast<std::uint8_t>(item));
}

template <typename T>
bool get_list(WireReader& reader, std::size_t names, std::vector<T>& list) {
  const std::size_t count = reader.get<std::uint8_t>();
  for (std::size_t i = 0; i < count && reader.ok(); ++i) {
    const auto item = reader.get<std::uint8_t>();
    if (item >= names || std::ranges::find(list, static_cast<T>(item)) != list.end()) return false;
    list.push_back(static_cast<T>(item));
  }
  return reader.ok();
}

Error bad_plan(const std::string& why) {
  return make_error(Errc::kBadMessage, "the plan of the client is not valid: " + why);
}

}  // namespace

const char* to_text(TestKind test) noexcept {
  return kTestNames[static_cast<std::size_t>(test)];
}
const char* to_text(Op op) noexcept {
  return kOpNames[static_cast<std::size_t>(op)];
}
const char* to_text(Metric metric) noexcept {
  return kMetricNames[static_cast<std::size_t>(metric)];
}

Result<std::vector<TestKind>> parse_tests(std::string_view text) {
  return parse_list<TestKind>(text, kTestNames);
}
Result<std::vector<Op>> parse_ops(std::string_view text) {
  return parse_list<Op>(text, kOpNames);
}
Result<BufferUse> parse_buffers(std::string_view text) {
  const auto index = find_name(text, kBufferNames);
  if (!index) return index.error();
  return static_cast<BufferUse>(*index);
}

std::string Cell::to_text() const {
  return std::string(benchmark::to_text(op)) + ' ' + programs::size_text(bytes) + ' ' + benchmark::to_text(metric);
}

Status Plan::validate() const {
  if (iterations == 0 && duration_us == 0) {
    return make_error(
        Errc::kInvalidArgument,
        "neither iterations nor a duration are given; one of them must set the length of the measurement");
  }
  for (const Status& checked : {
           check_range("the number of iterations", iterations, 0, kMaxIterations),
           check_range("the duration in us", duration_us, 0, kMaxDurationUs),
           check_range("the number of rounds", rounds, 1, kMaxRounds),
           check_range("the queue depth", queue_depth, 1, kMaxQueueDepth),
           check_range("the inline limit", inline_bytes, 0, kMaxInlineBytes),
           check_range("the number of sizes", sizes.size(), 1, programs::kMaxSizes),
       }) {
    if (!checked.ok()) return checked;
  }
  for (const std::uint64_t size : sizes) {
    if (Status checked = check_range("a message size", size, 1, kMaxMessageBytes); !checked.ok()) return checked;
  }
  if (!std::ranges::is_sorted(sizes)) return make_error(Errc::kInvalidArgument, "the sizes are not in ascending order");
  if (cells().empty()) {
    return make_error(Errc::kInvalidArgument, "nothing to measure: for atomics only the tests lat and rate exist");
  }
  if (std::ranges::any_of(cells(), &Cell::is_latency)) {
    Status checked = check_range("the number of iterations of a latency", iterations, 0, kMaxLatencies);
    if (!checked.ok()) return checked;
  }
  return check_range("the memory for messages in bytes", area_bytes(), 1, kMaxAreaBytes);
}

std::vector<Cell> Plan::cells() const {
  constexpr std::uint64_t kAtomicBytes = 8;
  std::vector<Cell> cells;
  for (const TestKind test : tests) {
    for (const Op op : ops) {
      for (const Metric metric : metrics_of(test, op)) {
        std::vector<std::uint64_t> at = sizes;
        if (test == TestKind::kRate) at = {rate_bytes()};
        if (is_atomic(op)) at = {kAtomicBytes};
        for (const std::uint64_t bytes : at) cells.push_back({.metric = metric, .op = op, .bytes = bytes});
      }
    }
  }
  return cells;
}

std::uint64_t Plan::rate_bytes() const {
  if (std::ranges::find(sizes, std::uint64_t{8}) != sizes.end()) return 8;
  return sizes.empty() ? 8 : sizes.front();
}

std::uint64_t Plan::blocks(std::uint64_t bytes) const noexcept {
  if (buffers == BufferUse::kOne) return 1;
  return std::clamp<std::uint64_t>(kRoundRobinBytes / stride(bytes), 1, queue_depth);
}

std::uint64_t Plan::stride(std::uint64_t bytes) noexcept {
  const std::uint64_t unit = bytes < 4096 ? 64 : 4096;  // whole cache lines, whole pages
  return (bytes + unit - 1) / unit * unit;
}

std::uint64_t Plan::area_bytes() const {
  std::uint64_t most = 0;
  for (const Cell& cell : cells()) most = std::max(most, blocks(cell.bytes) * stride(cell.bytes));
  return (most + 4095) / 4096 * 4096;
}

void Plan::encode(WireWriter& writer) const {
  put_list(writer, ops);
  put_list(writer, tests);
  writer.put(static_cast<std::uint8_t>(sizes.size()));
  for (const std::uint64_t size : sizes) writer.put(size);
  writer.put(iterations);
  writer.put(duration_us);
  writer.put(rounds);
  writer.put(queue_depth);
  writer.put(inline_bytes);
  writer.put(static_cast<std::uint8_t>(buffers));
  writer.put(static_cast<std::uint8_t>(verify));
  writer.put(static_cast<std::uint8_t>(corrupt));
  writer.put_text(machine_id);
  writer.put(static_cast<std::uint32_t>(client_cpu));
}

Result<Plan> Plan::decode(WireReader& reader) {
  Plan plan;
  if (!get_list(reader, kOpNames.size(), plan.ops)) return bad_plan("its operations");
  if (!get_list(reader, kTestNames.size(), plan.tests)) return bad_plan("its tests");
  const std::size_t sizes = reader.get<std::uint8_t>();
  for (std::size_t i = 0; i < sizes && reader.ok(); ++i) plan.sizes.push_back(reader.get<std::uint64_t>());
  plan.iterations = reader.get<std::uint32_t>();
  plan.duration_us = reader.get<std::uint64_t>();
  plan.rounds = reader.get<std::uint32_t>();
  plan.queue_depth = reader.get<std::uint32_t>();
  plan.inline_bytes = reader.get<std::uint32_t>();
  const auto buffers = reader.get<std::uint8_t>();
  plan.buffers = static_cast<BufferUse>(buffers);
  plan.verify = reader.get<std::uint8_t>() != 0;
  plan.corrupt = reader.get<std::uint8_t>() != 0;
  plan.machine_id = reader.get_text();
  plan.client_cpu = static_cast<std::int32_t>(reader.get<std::uint32_t>());
  if (!reader.ok()) return bad_plan("it ends too early");
  if (buffers >= kBufferNames.size()) return bad_plan("its use of buffers");
  if (const Status valid = plan.validate(); !valid.ok()) return bad_plan(valid.error().context);
  return plan;
}

}  // namespace rdmacomm::benchmark
