#include "lat_bw_benchmark/results.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "support/result_file.h"
#include "support/sizes.h"
#include "support/standard_output.h"

namespace rdmacomm::benchmark {
namespace {

using nlohmann::ordered_json;
using programs::number_text;
using programs::ratio_text;

std::vector<programs::Column> columns() {
  return {{.header = "op", .width = 12, .left = true},
          {.header = "measures", .width = 9, .left = true},
          {.header = "bytes", .width = 8},
          {.header = "iterations", .width = 10, .dispensable = 4},
          {.header = "min us", .width = 7, .dispensable = 2},
          {.header = "p50 us", .width = 7},
          {.header = "p99 us", .width = 7},
          {.header = "p99.9 us", .width = 8, .dispensable = 1},
          {.header = "max us", .width = 7},
          {.header = "mean us", .width = 7, .dispensable = 3},
          {.header = "GB/s", .width = 6},
          {.header = "Gb/s", .width = 6, .dispensable = 5},
          {.header = "Mops/s", .width = 6},
          {.header = "ratio", .width = 6}};
}

std::string cpu_text(int cpu) {
  return cpu < 0 ? "any CPU" : "CPU " + std::to_string(cpu);
}

/// The sizes at which memcpy was measured.
std::set<std::uint64_t> copied_sizes(const std::vector<CellResult>& results) {
  std::set<std::uint64_t> sizes;
  for (const CellResult& result : results) {
    if (!result.cell.is_latency()) sizes.insert(result.cell.bytes);
  }
  return sizes;
}

ordered_json plan_json(const Plan& plan) {
  ordered_json json;
  for (const TestKind test : plan.tests) json["tests"].push_back(to_text(test));
  for (const Op op : plan.ops) json["ops"].push_back(to_text(op));
  json["sizes"] = plan.sizes;
  if (plan.iterations != 0) json["iterations"] = plan.iterations;
  if (plan.duration_us != 0) json["duration_s"] = static_cast<double>(plan.duration_us) / 1e6;
  json["rounds"] = plan.rounds;
  json["queue_depth"] = plan.queue_depth;
  json["inline_bytes"] = plan.inline_bytes;
  json["buffers"] = plan.buffers == BufferUse::kOne ? "one" : "roundrobin";
  json["verify"] = plan.verify;
  return json;
}

ordered_json result_json(const CellResult& result) {
  ordered_json json;
  json["op"] = to_text(result.cell.op);
  json["measures"] = to_text(result.cell.metric);
  json["bytes"] = result.cell.bytes;
  json["iterations"] = result.iterations;
  if (result.cut_short) json["cut_short"] = true;
  if (result.cell.is_latency()) {
    const programs::Summary& us = result.latency_us;
    ordered_json& latency = json["latency_us"];
    latency = {{"min", us.min}, {"p50", us.p50}};
    if (us.has_p99()) latency["p99"] = us.p99;
    if (us.has_p999()) latency["p99.9"] = us.p999;
    latency["max"] = us.max;
    latency["mean"] = us.mean;
    json["cache_line_one_way_ns"] = result.base;
  } else {
    json["GB_per_s"] = result.gb_per_s;
    json["Gb_per_s"] = result.gb_per_s * 8;
    json["Mops_per_s"] = result.mops_per_s;
    json["memcpy_GB_per_s"] = result.base;
  }
  json["ratio"] = result.ratio > 0 ? ordered_json(result.ratio) : ordered_json(nullptr);
  return json;
}

ordered_json machine_json(const programs::MachineBaseline& machine, const std::set<std::uint64_t>& sizes) {
  ordered_json json;
  const double cache_line_ns = machine.cache_line_ns();
  json["cache_line_one_way_ns"] = cache_line_ns > 0 ? ordered_json(cache_line_ns) : ordered_json(nullptr);
  json["memcpy"] = ordered_json::array();
  for (const std::uint64_t bytes : sizes) {
    const programs::CopyFigures copy = machine.copy(bytes);
    json["memcpy"].push_back(
        {{"bytes", bytes}, {"alone_GB_per_s", copy.alone}, {"read_by_other_core_GB_per_s", copy.read_by_other}});
  }
  return json;
}

}  // namespace

ResultReport::ResultReport(std::ostream& out, const Plan& plan)
    : out_(out), plan_(plan), table_(columns(), programs::output_width()) {}

void ResultReport::begin(const RunInfo& info) {
  info_ = info;
  out_ << "client  " << info.client << ", " << cpu_text(info.client_cpu) << '\n'
       << "server  " << info.server << ", " << cpu_text(info.server_cpu) << '\n'
       << "path MTU " << info.path_mtu_bytes << ", queue depth " << plan_.queue_depth << ", inline up to "
       << plan_.inline_bytes << " bytes, buffers " << (plan_.buffers == BufferUse::kOne ? "one" : "roundrobin") << ", "
       << plan_.rounds << " rounds" << (plan_.verify ? ", verified" : "") << "\n\n"
       << "measures: half-rt = half of a round trip.  post-done = from post to completion.\n"
       << "          one-way, both-ways = bandwidth.  rate = rate of small messages.\n"
       << "ratio:    comparison with this host at the same time: latencies (p50) with\n"
       << "          the time of a cache line from core to core, bandwidths and rates with\n"
       << "          a memcpy of the same size.\n\n";
  table_.print_header(out_);
}

void ResultReport::add(const CellResult& result) {
  results_.push_back(result);
  const Cell& cell = result.cell;
  std::vector<std::string> cells = {to_text(cell.op), to_text(cell.metric), programs::size_text(cell.bytes),
                                    std::to_string(result.iterations)};
  const programs::Summary& us = result.latency_us;
  const std::array<std::pair<double, bool>, 6> latencies = {{{us.min, true},
                                                             {us.p50, true},
                                                             {us.p99, us.has_p99()},
                                                             {us.p999, us.has_p999()},
                                                             {us.max, true},
                                                             {us.mean, true}}};
  for (const auto& [value, known] : latencies) {
    cells.push_back(cell.is_latency() && known ? number_text(value) : "-");
  }
  for (const double value : {result.gb_per_s, result.gb_per_s * 8, result.mops_per_s}) {
    cells.push_back(cell.is_latency() ? "-" : number_text(value));
  }
  cells.push_back(ratio_text(result.ratio, result.ratio > 0 ? 1 : 0));
  table_.print_row(out_, cells);
}

void ResultReport::end(const programs::MachineBaseline& machine) {
  const auto cut = std::ranges::count_if(results_, &CellResult::cut_short);
  if (cut != 0) {
    out_ << "\n"
         << cut << (cut == 1 ? " line" : " lines") << " ended before --duration, because a line has at most "
         << Plan::kMaxLatencies << " latencies, or " << Plan::kMaxIterations << " other operations.\n";
  }
  out_ << "\nthis host, medians over the run:\n";
  if (!machine.has_second_cpu()) {
    out_ << "  a cache line from core to core: not measured, because this process may use one CPU only\n";
  } else if (machine.cache_line_ns() > 0) {  // else no latencies were measured, so it is not needed
    out_ << "  a cache line from core to core, one way: " << number_text(machine.cache_line_ns()) << " ns\n";
  }
  out_ << "  reading the clock: " << number_text(info_.clock_cost_ns) << " ns, part of each latency above\n";
  const std::set<std::uint64_t> sizes = copied_sizes(results_);
  if (sizes.empty()) return;
  const programs::Table table({{.header = "  memcpy of", .width = 11},
                               {.header = "alone GB/s", .width = 10},
                               {.header = "with the other core reading the result GB/s", .width = 10}});
  table.print_header(out_);
  for (const std::uint64_t bytes : sizes) {
    const programs::CopyFigures copy = machine.copy(bytes);
    table.print_row(out_, {programs::size_text(bytes), number_text(copy.alone),
                           copy.read_by_other > 0 ? number_text(copy.read_by_other) : "-"});
  }
}

Status ResultReport::write_json(const std::string& path, const programs::MachineBaseline& machine) const {
  ordered_json json;
  json["program"] = "lat_bw_benchmark";
  json["client"] = {{"device", info_.client}, {"cpu", info_.client_cpu}};
  json["server"] = {{"device", info_.server}, {"cpu", info_.server_cpu}};
  json["path_mtu_bytes"] = info_.path_mtu_bytes;
  json["clock_cost_ns"] = info_.clock_cost_ns;
  json["plan"] = plan_json(plan_);
  json["machine"] = machine_json(machine, copied_sizes(results_));
  json["results"] = ordered_json::array();
  for (const CellResult& result : results_) json["results"].push_back(result_json(result));
  out_.flush();  // the JSON file may be standard output
  return programs::replace_file(path, json.dump(2) + '\n');
}

}  // namespace rdmacomm::benchmark
