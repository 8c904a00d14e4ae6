#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "endpoint/endpoint_pair.h"
#include "rdmacomm/config.h"

namespace rdmacomm {
namespace {

using ::testing::HasSubstr;

DeviceLimits limits() {
  DeviceLimits limits;
  limits.max_qp_wr = 1024;
  limits.max_sge = 16;
  limits.max_cqe = 4096;
  limits.max_qp = 100;
  limits.max_read_depth = 16;
  limits.max_read_depth_initiator = 16;
  limits.mtu_bytes = 4096;
  return limits;
}

TEST(HcaConfig, DefaultsAreTwoChannels) {
  HcaConfig config;
  EXPECT_TRUE(config.validate(limits()).ok()) << config.validate(limits()).message();
  EXPECT_NE(config.find_channel("control"), nullptr);
  EXPECT_NE(config.find_channel("data"), nullptr);
  EXPECT_EQ(config.find_channel("Data"), nullptr);
  EXPECT_EQ(config.fitted(limits()).queue_depth(), 2 * (128 + 128));
}

TEST(HcaConfigDeathTest, AnUnknownChannelNameIsReportedInOneLine) {
  HcaConfig config;
  EXPECT_DEATH((void)config.channel("dataa"), "no channel has the name 'dataa'; the channels are: control, data");
}

TEST(HcaConfig, ChannelsAreCheckedAndNamed) {
  HcaConfig config;
  config.channels.clear();
  EXPECT_EQ(config.validate(limits()).code(), Errc::kInvalidArgument);
  config.channels = std::vector<ChannelConfig>(65, ChannelConfig{.name = "x"});
  EXPECT_THAT(config.validate(limits()).message(), HasSubstr("65 channels"));
  config.channels = {{.name = "same"}, {.name = "same"}};
  EXPECT_THAT(config.validate(limits()).message(), HasSubstr("'same'"));
  config.channels = {{.name = ""}};
  EXPECT_EQ(config.validate(limits()).code(), Errc::kInvalidArgument);
  config.channels = {{.name = "line\nbreak"}};
  EXPECT_EQ(config.validate(limits()).code(), Errc::kInvalidArgument);
  config.channels = {{.name = std::string(65, 'x')}};
  EXPECT_THAT(config.validate(limits()).message(), HasSubstr("65 bytes"));
}

TEST(HcaConfig, AnErrorOfAnAdapterNamesItsChannel) {
  HcaConfig config;
  config.channel("data").adapter.send_depth = 5000;
  const Status status = config.validate(limits());
  EXPECT_EQ(status.code(), Errc::kBeyondDeviceLimit);
  EXPECT_THAT(status.message(), HasSubstr("channel 'data'"));
}

TEST(HcaConfig, DepthsAddUpWithinTheDevicesQueue) {
  HcaConfig config;
  config.channels.clear();
  for (const char* name : {"a", "b", "c"}) {
    config.channels.push_back({.name = name});
    config.channels.back().adapter.send_depth = 1000;
    config.channels.back().adapter.recv_depth = 1000;
  }
  const Status status = config.validate(limits());
  EXPECT_EQ(status.code(), Errc::kBeyondDeviceLimit);
  EXPECT_THAT(status.message(), HasSubstr("6000"));
  config.channels.back().own_completion_queue = true;
  EXPECT_TRUE(config.validate(limits()).ok());
}

TEST(HcaConfig, SharedQueuesNeedAKeyAndADepth) {
  HcaConfig config;
  config.thread_mode = ThreadMode::kThreadPerCompletionQueue;
  EXPECT_TRUE(config.validate(limits()).ok());  // the default key, which all sessions use
  config.shared_queue_key = "";
  EXPECT_THAT(config.validate(limits()).message(), HasSubstr("HcaConfig::shared_queue_key"));
  config.shared_queue_key = "all";
  EXPECT_TRUE(config.validate(limits()).ok());
  config.shared_queue_depth = 0;
  EXPECT_EQ(config.validate(limits()).code(), Errc::kInvalidArgument);
  EXPECT_THAT(config.validate(limits()).message(), HasSubstr("shared_queue_depth is 0"));
  config.shared_queue_depth = 4097;
  EXPECT_EQ(config.validate(limits()).code(), Errc::kBeyondDeviceLimit);
  EXPECT_THAT(config.validate(limits()).message(), HasSubstr("shared_queue_depth is 4097; it must be 1..4096"));
}

TEST(HcaConfig, TheNumberOfSharedQueuesIsLimited) {
  HcaConfig config;
  config.thread_mode = ThreadMode::kThreadPerCompletionQueue;
  config.shared_queue_key = "all";
  for (const int wrong : {0, -1, HcaConfig::kMaxSharedQueues + 1}) {
    config.shared_queues = wrong;
    EXPECT_EQ(config.validate(limits()).code(), Errc::kInvalidArgument);
    EXPECT_THAT(config.validate(limits()).message(), HasSubstr("shared_queues is " + std::to_string(wrong)));
  }
  config.shared_queues = HcaConfig::kMaxSharedQueues;
  EXPECT_TRUE(config.validate(limits()).ok());
}

TEST(HcaConfig, ThreadsAreChecked) {
  HcaConfig config;
  config.threads = {.name = "tenletters", .cpus = {0, 7}};
  EXPECT_TRUE(config.validate(limits()).ok());
  config.threads.name = "";
  EXPECT_THAT(config.validate(limits()).message(), HasSubstr("the name of a thread has 0 bytes"));
  config.threads.name = "elevenbytes";
  EXPECT_THAT(config.validate(limits()).message(), HasSubstr("threads.name 'elevenbytes' has 11 bytes"));
  config.threads = {.cpus = {0, -3}};
  EXPECT_THAT(config.validate(limits()).message(), HasSubstr("threads.cpus has -3"));
}

TEST(HcaConfig, WaitingIsChecked) {
  HcaConfig config;
  config.waiting.spin = WaitOptions::kMaxSpin + std::chrono::microseconds(1);
  EXPECT_EQ(config.validate(limits()).code(), Errc::kInvalidArgument);
  EXPECT_THAT(config.validate(limits()).message(), HasSubstr("waiting.spin is 1000001 us"));
}

TEST(HcaConfig, UnsetFieldsAdaptToASmallDevice) {
  DeviceLimits small = limits();
  small.max_qp_wr = 20;
  small.max_cqe = 100;
  HcaConfig config;
  config.thread_mode = ThreadMode::kThreadPerCompletionQueue;
  config.shared_queue_key = "all";
  EXPECT_TRUE(config.validate(small).ok()) << config.validate(small).message();
  EXPECT_EQ(config.fitted(small).queue_depth(), 2 * (20 + 20));
}

TEST(HcaConfig, PublishedAndPrivateDataAreBounded) {
  HcaConfig config;
  config.private_data.resize(HcaConfig::kMaxPrivateDataBytes + 1);
  EXPECT_THAT(config.validate(limits()).message(), HasSubstr("65537 bytes of private data"));
  config.private_data.clear();
  config.published = {{.name = "b"}, {.name = "b"}};
  EXPECT_THAT(config.validate(limits()).message(), HasSubstr("'b'"));
  config.published.assign(HcaConfig::kMaxRegions + 1, {});
  EXPECT_THAT(config.validate(limits()).message(), HasSubstr("1025 published regions"));
}

TEST(HcaConfig, PublishesABufferUnderItsName) {
  const auto device = testing::open_soft_device();
  auto buffer = RDMABuffer::allocate(device, {.name = "inbox", .remote_access = RemoteAccess::kWrite});
  ASSERT_TRUE(buffer);
  HcaConfig config;
  config.publish(*buffer);
  ASSERT_EQ(config.published.size(), 1U);
  EXPECT_EQ(config.published[0].name, "inbox");
  EXPECT_EQ(config.published[0].region.rkey, (*buffer).remote_region().rkey);
}

}  // namespace
}  // namespace rdmacomm
