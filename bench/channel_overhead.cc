// channel_overhead - the cost that RDMAChannel adds to ibv_post_send and ibv_poll_cq, per operation.
//
// Both loops write the same 8 bytes over the same queue pair of the same device, in turn. The raw loop does as little
// as possible: its work request is built once, and only its id changes.
//
// usage: channel_overhead [--device=NAME]                      compares, round by round; exit 1 beyond 10 ns
//        channel_overhead [--device=NAME] --benchmark_...      each side under google-benchmark
//        channel_overhead --count=raw|channel OPERATIONS       no timing: for an instruction counter, see
//                                                              count_instructions.sh
#include <benchmark/benchmark.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "quantile.h"
#include "rdmacomm/channel.h"

namespace rdmacomm {
namespace {

constexpr std::uint32_t kBytes = 8;
constexpr int kBatch = 16;
constexpr double kAllowedNs = 10;

// Ends the program with one line if `result` is a failure.
template <typename T>
T must(Result<T> result) {
  if (result) return std::move(result).value();
  std::fprintf(stderr, "channel_overhead: %s\n", result.error().message().c_str());
  std::exit(1);
}
void must(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "channel_overhead: %s\n", status.message().c_str());
  std::exit(1);
}

// A channel connected to another one in this process, and memory at both ends. Members in creation order.
class Bench {
 public:
  explicit Bench(const std::string& device_name) {
    End* const ends[] = {&here_, &there_};
    RDMAAdapter adapters[] = {make(here_, device_name), make(there_, device_name)};
    for (int i = 0; i < 2; ++i) must(adapters[i].connect(adapters[1 - i].address()));
    for (int i = 0; i < 2; ++i) ends[i]->channel = must(RDMAChannel::create("bench", std::move(adapters[i])));
    slice_ = here_.buffer.at(0);
    remote_ = there_.buffer.remote_region();
    prepare_raw();
  }

  [[nodiscard]] std::string device_text() const { return here_.device.to_text(); }

  // Posts `count` WRITEs and polls until they are complete. Returns false if one failed.
  [[gnu::noinline]] bool by_channel(int count) {
    for (int i = 0; i < count; ++i) {
      if (!here_.channel->post_write(slice_, remote_, {.id = ++id_})) return false;
    }
    for (int left = count; left > 0;) {
      const Polled polled = here_.channel->poll(std::span(completions_, static_cast<std::size_t>(left)));
      if (!polled) return false;
      for (const Completion& each : polled) {
        if (!each.ok()) return false;
      }
      left -= static_cast<int>(polled.size());
    }
    return true;
  }

  [[gnu::noinline]] bool raw(int count) {
    for (int i = 0; i < count; ++i) {
      ibv_send_wr* bad = nullptr;
      wr_.wr_id = ++id_;
      if (ibv_post_send(qp_, &wr_, &bad) != 0) return false;
    }
    for (int left = count; left > 0;) {
      const int got = ibv_poll_cq(cq_, left, wcs_);
      if (got < 0) return false;
      for (int i = 0; i < got; ++i) {
        if (wcs_[i].status != IBV_WC_SUCCESS) return false;
      }
      left -= got;
    }
    return true;
  }

 private:
  struct End {
    RDMADevice device;
    RDMABuffer buffer;
    std::shared_ptr<RDMAChannel> channel;
  };

  static RDMAAdapter make(End& end, const std::string& device_name) {
    end.device = must(RDMADevice::open({.name = device_name}));
    end.buffer = must(RDMABuffer::allocate(end.device, {.block_bytes = kBytes, .remote_access = RemoteAccess::kWrite}));
    return must(RDMAAdapter::create(end.device));
  }

  void prepare_raw() {
    qp_ = here_.channel->native_handle();
    cq_ = qp_->send_cq;
    sge_ = {slice_.address, slice_.length, slice_.lkey};
    wr_.sg_list = &sge_;
    wr_.num_sge = 1;
    wr_.opcode = IBV_WR_RDMA_WRITE;
    wr_.send_flags = IBV_SEND_SIGNALED;
    wr_.wr.rdma.remote_addr = remote_.address;
    wr_.wr.rdma.rkey = remote_.rkey;
  }

  End here_;
  End there_;
  BufferSlice slice_{};
  RemoteRegion remote_{};
  std::uint64_t id_ = 0;
  Completion completions_[kBatch];
  ibv_wc wcs_[kBatch]{};
  ibv_qp* qp_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_sge sge_{};
  ibv_send_wr wr_{};
};

using Side = bool (Bench::*)(int);

void run(benchmark::State& state, Bench& bench, Side side, int batch) {
  for (auto _ : state) {
    if (!(bench.*side)(batch)) {
      state.SkipWithError("an operation failed");
      return;
    }
  }
  state.SetItemsProcessed(state.iterations() * batch);
}

// Nanoseconds per operation for `side`: runs `operations` of them in batches of `batch`. Ends the program on failure.
double time_of(Bench& bench, Side side, int operations, int batch) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (int done = 0; done < operations; done += batch) {
    if ((bench.*side)(batch)) continue;
    std::fprintf(stderr, "channel_overhead: an operation failed\n");
    std::exit(1);
  }
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count() / operations;
}

// Runs both loops alternately, in rounds so short that the state of the machine does not change in between, and
// compares each round with its neighbour. Differences between neighbours vary less than the difference of two medians.
// Returns the lower quartile of the differences, in nanoseconds: disturbances (for example another thread on the same
// core) can only add time.
double report_paired(Bench& bench, int batch) {
  constexpr int kRounds = 2001;
  constexpr int kOperations = 1600;
  std::vector<double> raw;
  std::vector<double> channel;
  std::vector<double> differences;
  for (int round = 0; round < kRounds; ++round) {
    const bool raw_first = round % 2 == 0;
    const double first = time_of(bench, raw_first ? &Bench::raw : &Bench::by_channel, kOperations, batch);
    const double second = time_of(bench, raw_first ? &Bench::by_channel : &Bench::raw, kOperations, batch);
    raw.push_back(raw_first ? first : second);
    channel.push_back(raw_first ? second : first);
    differences.push_back(channel.back() - raw.back());
  }
  const double lower = quantile(differences, 0.25);
  std::printf(
      "in batches of %2d: raw %5.1f ns, channel %5.1f ns, added %4.1f ns per operation (quartiles %.1f to %.1f)\n",
      batch, quantile(raw, 0.5), quantile(channel, 0.5), quantile(differences, 0.5), lower,
      quantile(differences, 0.75));
  return lower;
}

int count(Bench& bench, std::string_view side, int operations) {
  const Side measured = side == "raw" ? &Bench::raw : &Bench::by_channel;
  for (int i = 0; i < operations; ++i) {
    if (!(bench.*measured)(1)) return 1;
  }
  return 0;
}

// The comparison itself. Returns the exit status: 1 if the channel adds more than it may.
int compare(Bench& bench) {
  std::printf("%s, %u-byte WRITE, post to completion; the channel may add %.0f ns\n", bench.device_text().c_str(),
              kBytes, kAllowedNs);
  const double single = report_paired(bench, 1);
  const double batched = report_paired(bench, kBatch);
  return std::max(single, batched) <= kAllowedNs ? 0 : 1;
}

// The same under google-benchmark, for its formats and filters.
int measure(Bench& bench, int argc, char** argv) {
  // Defaults come first, so that the caller's arguments override them.
  std::vector<char*> arguments{argv[0]};
  std::string defaults[] = {"--benchmark_repetitions=25", "--benchmark_enable_random_interleaving=true",
                            "--benchmark_min_time=0.02", "--benchmark_display_aggregates_only=true"};
  for (std::string& one : defaults) arguments.push_back(one.data());
  arguments.insert(arguments.end(), argv + 1, argv + argc);
  int argument_count = static_cast<int>(arguments.size());
  benchmark::Initialize(&argument_count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(argument_count, arguments.data())) return 1;
  const auto add = [&](const char* name, Side side, int batch) {
    benchmark::RegisterBenchmark(name, [&bench, side, batch](benchmark::State& s) { run(s, bench, side, batch); });
  };
  add("raw/write", &Bench::raw, 1);
  add("channel/write", &Bench::by_channel, 1);
  add("raw/write_by_16", &Bench::raw, kBatch);
  add("channel/write_by_16", &Bench::by_channel, kBatch);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace
}  // namespace rdmacomm

int main(int argc, char** argv) {
  std::string device = "soft0";
  constexpr std::string_view kDevice = "--device=";
  constexpr std::string_view kCount = "--count=";
  if (argc > 1 && std::string_view(argv[1]).starts_with(kDevice)) {
    device = std::string_view(argv[1]).substr(kDevice.size());
    argv[1] = argv[0];
    ++argv;
    --argc;
  }
  rdmacomm::Bench bench(device);
  if (argc == 3 && std::string_view(argv[1]).starts_with(kCount)) {
    return rdmacomm::count(bench, std::string_view(argv[1]).substr(kCount.size()), std::atoi(argv[2]));
  }
  return argc == 1 ? rdmacomm::compare(bench) : rdmacomm::measure(bench, argc, argv);
}
