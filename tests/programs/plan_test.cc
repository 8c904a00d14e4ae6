#include "lat_bw_benchmark/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "lat_bw_benchmark/messages.h"

namespace rdmacomm::benchmark {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

Plan some_plan() {
  Plan plan;
  plan.ops = {Op::kSend, Op::kRead, Op::kFetchAdd};
  plan.tests = {TestKind::kLat, TestKind::kBw, TestKind::kRate};
  plan.sizes = {1, 8, 4096};
  plan.iterations = 1000;
  return plan;
}

std::size_t count(const std::vector<Cell>& cells, Op op, Metric metric) {
  return static_cast<std::size_t>(
      std::ranges::count_if(cells, [&](const Cell& cell) { return cell.op == op && cell.metric == metric; }));
}

TEST(ParseLists, TakeNamesInAnyOrder) {
  EXPECT_THAT(parse_ops("read,send,read").value(), ElementsAre(Op::kSend, Op::kRead));
  EXPECT_THAT(parse_ops("all").value(), SizeIs(6));
  EXPECT_THAT(parse_tests("rate,lat").value(), ElementsAre(TestKind::kLat, TestKind::kRate));
  EXPECT_EQ(parse_buffers("roundrobin").value(), BufferUse::kRoundRobin);
}

TEST(ParseLists, NameUnknownWords) {
  EXPECT_THAT(parse_ops("send,wriet").error().context, HasSubstr("\"wriet\" is not one of send, write,"));
  EXPECT_THAT(parse_ops("").error().context, HasSubstr("\"\" is not one of"));
  EXPECT_THAT(parse_ops("send,").error().context, HasSubstr("\"\" is not one of"));
  EXPECT_THAT(parse_tests("latency").error().context, HasSubstr("lat, bw, bibw, rate"));
  EXPECT_THAT(parse_buffers("two").error().context, HasSubstr("one, roundrobin"));
}

TEST(Plan, HasTheValidCells) {
  Plan plan = some_plan();
  plan.ops = parse_ops("all").value();
  plan.tests = parse_tests("all").value();
  const auto cells = plan.cells();
  for (const Op op : {Op::kSend, Op::kWrite, Op::kWriteImm}) EXPECT_EQ(count(cells, op, Metric::kHalfRoundTrip), 3U);
  for (const Op op : {Op::kWrite, Op::kRead}) EXPECT_EQ(count(cells, op, Metric::kCompletion), 3U);
  for (const Op op : {Op::kFetchAdd, Op::kCompareSwap}) {
    EXPECT_EQ(count(cells, op, Metric::kCompletion), 1U) << "atomics have one size";
    EXPECT_EQ(count(cells, op, Metric::kOneWay), 0U);
    EXPECT_EQ(count(cells, op, Metric::kRate), 1U);
  }
  EXPECT_EQ(count(cells, Op::kRead, Metric::kHalfRoundTrip), 0U);
  for (const Op op : {Op::kSend, Op::kWrite, Op::kWriteImm, Op::kRead}) {
    EXPECT_EQ(count(cells, op, Metric::kOneWay), 3U);
    EXPECT_EQ(count(cells, op, Metric::kBothWays), 3U);
    EXPECT_EQ(count(cells, op, Metric::kRate), 1U);
  }
}

TEST(Plan, MeasuresTheRateAtEightBytesOrTheSmallestSize) {
  Plan plan = some_plan();
  EXPECT_EQ(plan.rate_bytes(), 8U);
  plan.sizes = {64, 4096};
  EXPECT_EQ(plan.rate_bytes(), 64U);
}

TEST(Plan, RefusesImpossibleMeasurements) {
  const auto refusal = [](auto change) {
    Plan plan = some_plan();
    change(plan);
    const Status status = plan.validate();
    EXPECT_EQ(status.code(), Errc::kInvalidArgument);
    return status.message();
  };
  EXPECT_TRUE(some_plan().validate().ok());
  EXPECT_THAT(refusal([](Plan& p) { p.iterations = 0; }), HasSubstr("neither iterations nor a duration"));
  EXPECT_THAT(refusal([](Plan& p) { p.iterations = 10'000'001; }), HasSubstr("10000001"));
  EXPECT_THAT(refusal([](Plan& p) {
                p.tests = {TestKind::kLat};
                p.iterations = 1'000'001;
              }),
              HasSubstr("iterations of a latency is 1000001; possible are 0 to 1000000"));
  EXPECT_THAT(refusal([](Plan& p) { p.rounds = 0; }), HasSubstr("rounds is 0"));
  EXPECT_THAT(refusal([](Plan& p) { p.queue_depth = 1025; }), HasSubstr("queue depth is 1025; possible are 1 to 1024"));
  EXPECT_THAT(refusal([](Plan& p) { p.inline_bytes = 257; }), HasSubstr("257"));
  EXPECT_THAT(refusal([](Plan& p) { p.sizes = {}; }), HasSubstr("sizes is 0"));
  EXPECT_THAT(refusal([](Plan& p) { p.sizes = {0}; }), HasSubstr("message size is 0"));
  EXPECT_THAT(refusal([](Plan& p) { p.sizes = {std::uint64_t{1} << 32}; }), HasSubstr("4294967296"));
  EXPECT_THAT(refusal([](Plan& p) { p.sizes = {8, 1}; }), HasSubstr("ascending"));
  EXPECT_THAT(refusal([](Plan& p) { p.tests = {}; }), HasSubstr("nothing to measure"));
  EXPECT_THAT(refusal([](Plan& p) {
                p.ops = {Op::kFetchAdd};
                p.tests = {TestKind::kBw};
              }),
              HasSubstr("nothing to measure"));
}

TEST(Plan, UsesMemoryInProportionToItsSizes) {
  Plan plan = some_plan();
  EXPECT_EQ(plan.area_bytes(), 4096U);
  plan.sizes = {8U << 20};
  EXPECT_EQ(plan.area_bytes(), 8U << 20) << "one buffer of the largest size";
  plan.buffers = BufferUse::kRoundRobin;
  EXPECT_EQ(plan.blocks(8U << 20), 4U);
  EXPECT_EQ(plan.area_bytes(), 32U << 20);
  EXPECT_EQ(plan.blocks(1), plan.queue_depth);
  EXPECT_EQ(plan.blocks(1U << 30), 1U);
}

TEST(Plan, IsDecodedAsItWasEncoded) {
  Plan plan = some_plan();
  plan.buffers = BufferUse::kRoundRobin;
  plan.verify = true;
  plan.corrupt = true;
  plan.machine_id = "here";
  plan.client_cpu = 3;
  plan.inline_bytes = 64;
  plan.rounds = 7;
  const auto there = unpack<Plan>(pack(plan));
  ASSERT_TRUE(there.has_value()) << there.error().message();
  EXPECT_EQ(pack(*there), pack(plan));
  EXPECT_EQ(there->cells(), plan.cells());
  EXPECT_EQ(there->client_cpu, 3);
  EXPECT_EQ(there->machine_id, "here");
}

TEST(Plan, ATruncatedPlanIsRefused) {
  const auto bytes = pack(some_plan());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    const auto cut = unpack<Plan>(std::span(bytes).first(length));
    ASSERT_FALSE(cut.has_value()) << length;
    EXPECT_EQ(cut.code(), Errc::kBadMessage);
  }
  auto longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_EQ(unpack<Plan>(longer).code(), Errc::kBadMessage);
}

}  // namespace
}  // namespace rdmacomm::benchmark
