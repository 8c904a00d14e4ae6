// Messages that the other programs exchange besides their data: ping_pong_test, lat_bw_benchmark, rdma_send and
// rdma_recv.
#include "fuzz/properties.h"
#include "lat_bw_benchmark/messages.h"
#include "lat_bw_benchmark/plan.h"
#include "ping_pong/terms.h"
#include "pipes/terms.h"

namespace rdmacomm::fuzz {
namespace {
namespace program_terms_target {

void check_plan(const benchmark::Plan& plan) {
  RDMACOMM_FUZZ_CHECK(plan.validate().ok());
  RDMACOMM_FUZZ_CHECK(plan.area_bytes() > 0 && plan.area_bytes() <= benchmark::Plan::kMaxAreaBytes);
  const auto cells = plan.cells();
  RDMACOMM_FUZZ_CHECK(!cells.empty());
  for (const benchmark::Cell& cell : cells) {
    RDMACOMM_FUZZ_CHECK(plan.blocks(cell.bytes) * benchmark::Plan::stride(cell.bytes) <= plan.area_bytes());
    check_harmless(cell.to_text());
  }
}

/// A message of the benchmark, with its header.
template <typename T>
std::optional<T> check_message(Bytes input) {
  auto message = benchmark::unpack<T>(input);
  if (!check_outcome(message)) return {};
  const auto wire = benchmark::pack(*message);
  const auto again = benchmark::unpack<T>(wire);
  RDMACOMM_FUZZ_CHECK(again.has_value() && benchmark::pack(*again) == wire);
  return std::move(*message);
}

void check_benchmark(Bytes input) {
  using namespace benchmark;
  if (const auto plan = check_message<Plan>(input)) check_plan(*plan);
  if (const auto reply = check_message<Reply>(input)) check_harmless(reply->device);
  if (const auto order = check_message<Order>(input)) RDMACOMM_FUZZ_CHECK(order->iterations > 0);
  if (const auto report = check_message<Report>(input)) check_harmless(report->first_corruption);
  (void)check_message<Ready>(input);
  (void)check_message<Finish>(input);
  (void)check_message<Done>(input);
}

void check_pipes(Bytes input) {
  if (const auto terms = check_decode<pipes::Terms>(input, Form::kOnlyOne)) {
    RDMACOMM_FUZZ_CHECK(terms->validate().ok());
    RDMACOMM_FUZZ_CHECK(std::uint64_t{terms->block_bytes} * terms->blocks <= pipes::Terms::kMaxBytes);
  }
  (void)check_decode<pipes::Total>(input, Form::kOnlyOne);
  if (const auto verdict = check_decode<pipes::Verdict>(input)) check_harmless(verdict->failure.value_or(""));
}

void run(Bytes input) {
  if (const auto terms = check_decode<ping_pong::Terms>(input, Form::kOnlyOne)) {
    RDMACOMM_FUZZ_CHECK(terms->validate().ok());
  }
  check_benchmark(input);
  check_pipes(input);
}

std::vector<Seed> seeds() {
  benchmark::Plan plan;
  plan.ops = {benchmark::Op::kWrite, benchmark::Op::kFetchAdd};
  plan.tests = {benchmark::TestKind::kLat, benchmark::TestKind::kBw};
  plan.sizes = {8, 65536};
  plan.iterations = 1000;
  plan.buffers = benchmark::BufferUse::kRoundRobin;
  plan.verify = true;
  plan.machine_id = "0123456789abcdef";
  return {
      {"ping_pong", ping_pong::Terms{}.encode()},
      {"plan", benchmark::pack(plan)},
      {"reply", benchmark::pack(benchmark::Reply{.device = "soft0 port 1", .cpu = 3})},
      {"order", benchmark::pack(benchmark::Order{.cell = 2, .iterations = 1000, .sequence = 7})},
      {"report", benchmark::pack(benchmark::Report{
                     .elapsed_ns = 1000, .verified = 10, .corrupt = 1, .first_corruption = "byte 17"})},
      {"ready", benchmark::pack(benchmark::Ready{})},
      {"pipe_terms", pipes::Terms{.size = 10000}.encode()},
      {"pipe_total", pipes::Total{.bytes = 10000, .checksum = 0x0123456789abcdef}.encode()},
      {"pipe_verdict", pipes::Verdict{}.encode()},
      {"pipe_failure", pipes::Verdict{.failure = "the disk is full"}.encode()},
  };
}

}  // namespace program_terms_target
}  // namespace

const Target program_terms{"program_terms", program_terms_target::run, program_terms_target::seeds};

}  // namespace rdmacomm::fuzz
