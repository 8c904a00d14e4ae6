#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rdmacomm/adapter.h"

namespace rdmacomm {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr DeviceLimits kLimits{
    .max_qp_wr = 1000, .max_sge = 6, .max_sge_rd = 2, .max_read_depth = 255, .max_read_depth_initiator = 255};

std::error_code validated(auto change) {
  AdapterConfig config;
  change(config);
  return config.validate(kLimits).code();
}

TEST(AdapterConfig, TheDefaultsAreValid) {
  EXPECT_TRUE(AdapterConfig{}.validate(kLimits).ok());
}

TEST(AdapterConfig, BoundsAreInclusive) {
  EXPECT_FALSE(validated([](AdapterConfig& c) { c.send_depth = c.recv_depth = 1; }));
  EXPECT_FALSE(validated([](AdapterConfig& c) { c.send_depth = c.recv_depth = 1000; }));
  EXPECT_FALSE(validated([](AdapterConfig& c) { c.max_send_slices = c.max_recv_slices = 6; }));
  EXPECT_FALSE(validated([](AdapterConfig& c) { c.max_inline_bytes = 0; }));
  EXPECT_FALSE(validated([](AdapterConfig& c) { c.mtu_bytes = 256; }));
  EXPECT_FALSE(validated([](AdapterConfig& c) { c.service_level = 15; }));
  EXPECT_FALSE(validated([](AdapterConfig& c) { c.ack_timeout = 0us; }));
  EXPECT_FALSE(validated([](AdapterConfig& c) { c.ack_timeout = 8'796'093'022us; }));
  EXPECT_FALSE(validated([](AdapterConfig& c) { c.retry_count = c.rnr_retry = 0; }));
  EXPECT_FALSE(validated([](AdapterConfig& c) { c.min_rnr_timer = 655'360us; }));
  EXPECT_FALSE(validated([](AdapterConfig& c) { c.max_read_depth = c.max_read_depth_responder = 255; }));
}

/// The error of a refused value must have the value and the limit. Tests each limit of the device.
TEST(AdapterConfig, EachDeviceLimitIsInclusiveAndARefusalHasBothNumbers) {
  const DeviceLimits limits{.max_qp_wr = 1000,
                            .max_sge = 6,
                            .max_sge_rd = 2,
                            .max_read_depth = 4,
                            .max_read_depth_initiator = 3,
                            .max_service_level = 7};
  const auto expect = [&limits](const char* field, int bound, auto set) {
    AdapterConfig config;
    set(config, bound);
    EXPECT_TRUE(config.validate(limits).ok()) << field;
    set(config, bound + 1);
    const Status beyond = config.validate(limits);
    EXPECT_EQ(beyond.code(), Errc::kBeyondDeviceLimit) << field;
    EXPECT_THAT(beyond.message(), HasSubstr(std::string(field) + " is " + std::to_string(bound + 1)));
    EXPECT_THAT(beyond.message(), HasSubstr(".." + std::to_string(bound) + " on this device"));
  };
  expect("send_depth", 1000, [](AdapterConfig& c, int value) { c.send_depth = value; });
  expect("recv_depth", 1000, [](AdapterConfig& c, int value) { c.recv_depth = value; });
  expect("max_send_slices", 6, [](AdapterConfig& c, int value) { c.max_send_slices = value; });
  expect("max_recv_slices", 6, [](AdapterConfig& c, int value) { c.max_recv_slices = value; });
  expect("max_read_slices", 2, [](AdapterConfig& c, int value) { c.max_read_slices = value; });
  expect("max_read_depth", 3, [](AdapterConfig& c, int value) { c.max_read_depth = value; });
  expect("max_read_depth_responder", 4, [](AdapterConfig& c, int value) { c.max_read_depth_responder = value; });
  expect("service_level", 7, [](AdapterConfig& c, int value) { c.service_level = static_cast<std::uint8_t>(value); });
}

TEST(AdapterConfig, EachFieldBelowItsRangeIsAnInvalidArgument) {
  EXPECT_EQ(validated([](AdapterConfig& c) { c.send_depth = 0; }), Errc::kInvalidArgument);
  EXPECT_EQ(validated([](AdapterConfig& c) { c.recv_depth = -1; }), Errc::kInvalidArgument);
  EXPECT_EQ(validated([](AdapterConfig& c) { c.max_send_slices = 0; }), Errc::kInvalidArgument);
  EXPECT_EQ(validated([](AdapterConfig& c) { c.max_recv_slices = 0; }), Errc::kInvalidArgument);
  EXPECT_EQ(validated([](AdapterConfig& c) { c.max_read_slices = 0; }), Errc::kInvalidArgument);
  EXPECT_EQ(validated([](AdapterConfig& c) { c.max_inline_bytes = -1; }), Errc::kInvalidArgument);
  EXPECT_EQ(validated([](AdapterConfig& c) { c.mtu_bytes = 0; }), Errc::kInvalidArgument);
  EXPECT_EQ(validated([](AdapterConfig& c) { c.hop_limit = 0; }), Errc::kInvalidArgument);
  EXPECT_EQ(validated([](AdapterConfig& c) { c.ack_timeout = -1us; }), Errc::kInvalidArgument);
  EXPECT_EQ(validated([](AdapterConfig& c) { c.min_rnr_timer = -1us; }), Errc::kInvalidArgument);
  EXPECT_EQ(validated([](AdapterConfig& c) { c.max_read_depth = -1; }), Errc::kInvalidArgument);
  EXPECT_EQ(validated([](AdapterConfig& c) { c.max_read_depth_responder = -1; }), Errc::kInvalidArgument);
}

TEST(AdapterConfig, EachFieldAboveItsRangeIsRefused) {
  EXPECT_EQ(validated([](AdapterConfig& c) { c.send_depth = 1001; }), Errc::kBeyondDeviceLimit);
  EXPECT_EQ(validated([](AdapterConfig& c) { c.recv_depth = 1001; }), Errc::kBeyondDeviceLimit);
  EXPECT_EQ(validated([](AdapterConfig& c) { c.max_send_slices = 7; }), Errc::kBeyondDeviceLimit);
  EXPECT_EQ(validated([](AdapterConfig& c) { c.max_recv_slices = 7; }), Errc::kBeyondDeviceLimit);
  EXPECT_EQ(validated([](AdapterConfig& c) { c.max_inline_bytes = 65'536; }), Errc::kInvalidArgument);
  EXPECT_EQ(validated([](AdapterConfig& c) { c.mtu_bytes = 1500; }), Errc::kInvalidArgument);
  EXPECT_EQ(validated([](AdapterConfig& c) { c.mtu_bytes = 8192; }), Errc::kInvalidArgument);
  EXPECT_EQ(validated([](AdapterConfig& c) { c.service_level = 16; }), Errc::kInvalidArgument);
  EXPECT_EQ(validated([](AdapterConfig& c) { c.ack_timeout = 8'796'093'023us; }), Errc::kInvalidArgument);
  EXPECT_EQ(validated([](AdapterConfig& c) { c.retry_count = 8; }), Errc::kInvalidArgument);
  EXPECT_EQ(validated([](AdapterConfig& c) { c.rnr_retry = 8; }), Errc::kInvalidArgument);
  EXPECT_EQ(validated([](AdapterConfig& c) { c.min_rnr_timer = 655'361us; }), Errc::kInvalidArgument);
  EXPECT_EQ(validated([](AdapterConfig& c) { c.max_read_depth = 256; }), Errc::kBeyondDeviceLimit);
  EXPECT_EQ(validated([](AdapterConfig& c) { c.max_read_depth_responder = 256; }), Errc::kBeyondDeviceLimit);
}

TEST(AdapterConfig, TheErrorNamesFieldValueAndBounds) {
  AdapterConfig config;
  config.send_depth = 5000;
  EXPECT_EQ(config.validate(kLimits).error().context,
            "AdapterConfig::send_depth is 5000; it must be 1..1000 on this device");
  config = {};
  config.mtu_bytes = 1500;
  EXPECT_THAT(config.validate(kLimits).error().context, HasSubstr("256, 512, 1024, 2048 or 4096"));
}

TEST(AdapterConfig, AReadHasNoMoreSlicesThanASend) {
  AdapterConfig config{.max_send_slices = 1, .max_read_slices = 2};
  EXPECT_EQ(config.validate(kLimits).code(), Errc::kInvalidArgument);
  EXPECT_THAT(config.validate(kLimits).error().context,
              HasSubstr("max_read_slices is 2, more than max_send_slices, 1"));
  config.max_send_slices = 2;
  EXPECT_TRUE(config.validate(kLimits).ok());
}

TEST(AdapterConfig, UnsetFieldsGetTheDefaultOrTheDeviceLimit) {
  const AdapterConfig usual = AdapterConfig{}.fitted(
      {.max_qp_wr = 1000, .max_sge = 6, .max_sge_rd = 6, .max_read_depth = 100, .max_read_depth_initiator = 100});
  EXPECT_EQ(usual.send_depth, 128);
  EXPECT_EQ(usual.recv_depth, 128);
  EXPECT_EQ(usual.max_send_slices, 4);
  EXPECT_EQ(usual.max_recv_slices, 4);
  EXPECT_EQ(usual.max_read_slices, 4);
  EXPECT_EQ(usual.max_read_depth, 16);
  EXPECT_EQ(usual.max_read_depth_responder, 16);
  const DeviceLimits small{.max_qp_wr = 10, .max_sge = 1, .max_sge_rd = 1, .max_read_depth = 0};
  const AdapterConfig fitted = AdapterConfig{}.fitted(small);
  EXPECT_TRUE(AdapterConfig{}.validate(small).ok());
  EXPECT_TRUE(fitted.validate(small).ok());
  EXPECT_EQ(fitted.send_depth, 10);
  EXPECT_EQ(fitted.max_recv_slices, 1);
  EXPECT_EQ(fitted.max_read_depth, 0);
}

TEST(AdapterConfig, GivenValuesAreKept) {
  const AdapterConfig given{.send_depth = 5,
                            .recv_depth = 6,
                            .max_send_slices = 3,
                            .max_recv_slices = 2,
                            .max_read_slices = 1,
                            .max_read_depth = 0,
                            .max_read_depth_responder = 9};
  const AdapterConfig fitted = given.fitted(kLimits);
  EXPECT_EQ(fitted.send_depth, 5);
  EXPECT_EQ(fitted.recv_depth, 6);
  EXPECT_EQ(fitted.max_send_slices, 3);
  EXPECT_EQ(fitted.max_recv_slices, 2);
  EXPECT_EQ(fitted.max_read_slices, 1);
  EXPECT_EQ(fitted.max_read_depth, 0);
  EXPECT_EQ(fitted.max_read_depth_responder, 9);
}

TEST(AdapterConfig, AckTimeoutIsRoundedUpToThePowerOfTwo) {
  const auto code = [](std::chrono::microseconds timeout) {
    return static_cast<int>(AdapterConfig{.ack_timeout = timeout}.ack_timeout_code());
  };
  EXPECT_EQ(code(0us), 0);  // forever
  EXPECT_EQ(code(1us), 1);
  EXPECT_EQ(code(8us), 1);  // 8.192 us
  EXPECT_EQ(code(9us), 2);  // 16.384 us
  EXPECT_EQ(code(67'108us), 14);
  EXPECT_EQ(code(67'109us), 15);
  EXPECT_EQ(code(8'796'093'022us), 31);
  EXPECT_EQ(AdapterConfig{}.ack_timeout_code(), 14);
}

TEST(AdapterConfig, RnrTimerIsRoundedUpToItsStep) {
  const auto code = [](std::chrono::microseconds timer) {
    return static_cast<int>(AdapterConfig{.min_rnr_timer = timer}.min_rnr_timer_code());
  };
  EXPECT_EQ(code(0us), 1);
  EXPECT_EQ(code(10us), 1);
  EXPECT_EQ(code(11us), 2);
  EXPECT_EQ(code(640us), 12);
  EXPECT_EQ(code(641us), 13);
  EXPECT_EQ(code(491'520us), 31);
  EXPECT_EQ(code(491'521us), 0);  // 655.36 ms has the code 0
  EXPECT_EQ(code(655'360us), 0);
}

}  // namespace
}  // namespace rdmacomm
