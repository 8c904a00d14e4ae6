#include "lat_bw_benchmark/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace rdmacomm::benchmark {
namespace {

using testing::HasSubstr;

TEST(Messages, AreDecodedAsTheyWereEncoded) {
  const auto reply = unpack<Reply>(pack(Reply{.device = "soft0 port 1", .cpu = 1}));
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->device, "soft0 port 1");
  EXPECT_EQ(reply->cpu, 1);
  EXPECT_EQ(unpack<Reply>(pack(Reply{}))->cpu, -1);

  const auto order = unpack<Order>(pack(Order{.cell = 3, .iterations = 17, .sequence = 99}));
  ASSERT_TRUE(order.has_value());
  EXPECT_EQ(order->cell, 3U);
  EXPECT_EQ(order->iterations, 17U);
  EXPECT_EQ(order->sequence, 99U);

  const Report sent{.elapsed_ns = 5, .verified = 6, .corrupt = 1, .first_corruption = "byte 3"};
  const auto report = unpack<Report>(pack(sent));
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->elapsed_ns, 5U);
  EXPECT_EQ(report->corrupt, 1U);
  EXPECT_EQ(report->first_corruption, "byte 3");
  EXPECT_TRUE(unpack<Done>(pack(Done{})).has_value());
}

TEST(Messages, OfAnotherKindVersionOrProgramAreRefused) {
  EXPECT_THAT(unpack<Order>(pack(Ready{})).error().context, HasSubstr("READY, but ORDER was expected"));
  auto bytes = pack(Ready{});
  bytes[4] = std::byte{9};
  EXPECT_EQ(unpack<Ready>(bytes).code(), Errc::kVersionMismatch);
  EXPECT_THAT(unpack<Ready>(bytes).error().context, HasSubstr("version 9"));
  bytes = pack(Ready{});
  bytes[0] = std::byte{'X'};
  EXPECT_THAT(unpack<Ready>(bytes).error().context, HasSubstr("not lat_bw_benchmark"));
  bytes = pack(Ready{});
  bytes[6] = std::byte{77};
  EXPECT_THAT(unpack<Ready>(bytes).error().context, HasSubstr("unknown kind 77"));
}

TEST(Messages, OrdersHaveBounds) {
  EXPECT_EQ(unpack<Order>(pack(Order{.cell = 0, .iterations = 0})).code(), Errc::kBadMessage);
  EXPECT_EQ(unpack<Order>(pack(Order{.cell = 0, .iterations = Plan::kMaxIterations + 1})).code(), Errc::kBadMessage);
}

TEST(Messages, TextOfThePeerCannotSteerATerminal) {
  const auto reply = unpack<Reply>(pack(Reply{.device = "\x1b[31mred\n"}));
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->device, "?[31mred?");
}

/// For any change of the bytes in transit: a plan that is accepted can be carried out and is within its limits.
TEST(MessagesFuzz, MutatedPlansAreRefusedOrWithinBounds) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Plan plan;
  plan.ops = parse_ops("all").value();
  plan.tests = parse_tests("all").value();
  plan.sizes = {1, 8, 64, 4096, 65536, 1 << 20};
  plan.duration_us = 100'000;
  plan.machine_id = "0123-4567";
  const auto original = pack(plan);
  int accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    auto bytes = original;
    for (unsigned changes = 1 + random() % 4; changes > 0; --changes) {
      switch (random() % 4) {
        case 0: bytes[random() % bytes.size()] = static_cast<std::byte>(random()); break;
        case 1: bytes[random() % bytes.size()] ^= static_cast<std::byte>(1U << (random() % 8)); break;
        case 2: bytes.resize(1 + random() % bytes.size()); break;
        default:
          bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(random() % bytes.size()), std::byte{0xff});
          break;
      }
    }
    const auto got = unpack<Plan>(bytes);
    if (!got) continue;
    ++accepted;
    ASSERT_TRUE(got->validate().ok());
    ASSERT_LE(got->area_bytes(), Plan::kMaxAreaBytes);
    for (const Cell& cell : got->cells())
      ASSERT_LE(got->blocks(cell.bytes) * Plan::stride(cell.bytes), got->area_bytes());
  }
  EXPECT_GT(accepted, 0) << "the mutations are too rough to test anything but the header";
}

TEST(MessagesFuzz, NoiseIsRefused) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 5'000; ++i) {
    std::vector<std::byte> bytes(random() % 200);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    EXPECT_FALSE(unpack<Plan>(bytes).has_value());
    EXPECT_FALSE(unpack<Report>(bytes).has_value());
  }
}

}  // namespace
}  // namespace rdmacomm::benchmark
