// Channels that are opened after the endpoint is connected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <set>

#include "endpoint/channel_opening.h"
#include "endpoint/endpoint_pair.h"
#include "rdmacomm/buffer.h"

namespace rdmacomm {
namespace {

using namespace rdmacomm::testing;  // NOLINT(google-build-using-namespace): the tools of this test
using ::testing::HasSubstr;

struct Opened {
  Result<ChannelCore*> client = make_error(Errc::kTimeout, "not tried");
  Result<ChannelCore*> server = make_error(Errc::kTimeout, "not tried");
};

Opened open_both(const EndPointPair& pair, const ChannelConfig& client, const ChannelConfig& server,
                 Deadline deadline = soon()) {
  Opened opened;
  auto there = std::async(std::launch::async, [&] { return pair.server->open_channel(server, deadline); });
  opened.client = pair.client->open_channel(client, deadline);
  opened.server = there.get();
  return opened;
}

RDMABuffer buffer_on(const RDMADevice& device) {
  return RDMABuffer::allocate(device, {.block_bytes = 64}).value();
}

Completion next_of(EndPointCore& endpoint, ChannelCore* own = nullptr) {
  const auto completion = own == nullptr ? endpoint.next(soon()) : endpoint.next(*own, soon());
  EXPECT_TRUE(completion) << completion.status().message();
  return completion ? *completion : Completion();
}

/// Sends a message from one end to the other, and checks the completions at both ends.
void expect_message(const EndPointPair& pair, const Opened& opened, bool own_queues) {
  const auto from = buffer_on(opened.client.value()->device());
  const auto to = buffer_on(opened.server.value()->device());
  std::memcpy(from.data(), "over there", 10);
  ASSERT_TRUE((*opened.server)->post_recv(to.at(0), {.id = 1}));
  ASSERT_TRUE((*opened.client)->post_send(from.at(0), {.id = 2}));
  const Completion sent = next_of(*pair.client, own_queues ? *opened.client : nullptr);
  EXPECT_TRUE(sent.ok());
  EXPECT_EQ(sent.channel, *opened.client);
  const Completion received = next_of(*pair.server, own_queues ? *opened.server : nullptr);
  EXPECT_EQ(received.channel, *opened.server);
  EXPECT_EQ(std::memcmp(to.data(), "over there", 10), 0);
}

TEST(EndPointChannels, AnotherOneIsOpenedWhileConnected) {
  const EndPointPair pair;
  const Opened opened = open_both(pair, {.name = "bulk"}, {.name = "bulk", .adapter = {.send_depth = 7}});
  ASSERT_TRUE(opened.client.has_value()) << opened.client.error().message();
  ASSERT_TRUE(opened.server.has_value()) << opened.server.error().message();
  EXPECT_EQ(pair.client->channel("bulk"), *opened.client);
  EXPECT_EQ(pair.server->channels().size(), 3U);
  EXPECT_EQ((*opened.server)->send_depth(), 7);
  expect_message(pair, opened, false);
}

TEST(EndPointChannels, EachOfSeveralThreadsOpensItsOwn) {
  constexpr int kThreads = 8;
  const EndPointPair pair;
  std::vector<std::future<Opened>> all;
  for (int i = 0; i < kThreads; ++i) {
    all.push_back(std::async(std::launch::async, [&pair, i] {
      const ChannelConfig config{.name = "thread " + std::to_string(i), .own_completion_queue = true};
      Opened opened = open_both(pair, config, config);
      if (opened.client.has_value() && opened.server.has_value()) expect_message(pair, opened, true);
      return opened;
    }));
  }
  for (auto& each : all) {
    const Opened opened = each.get();
    EXPECT_TRUE(opened.client.has_value()) << opened.client.status().message();
    EXPECT_TRUE(opened.server.has_value()) << opened.server.status().message();
  }
  EXPECT_EQ(pair.client->channels().size(), 2U + kThreads);
}

TEST(EndPointChannels, OnAnotherDevice) {
  const EndPointPair pair;
  const std::shared_ptr<DeviceCore> here = open_soft_device();
  const std::shared_ptr<DeviceCore> there = open_soft_device();
  const Opened opened = open_both(pair, {.name = "second", .device = here}, {.name = "second", .device = there});
  ASSERT_TRUE(opened.client.has_value()) << opened.client.error().message();
  ASSERT_TRUE(opened.server.has_value()) << opened.server.error().message();
  EXPECT_EQ(&(*opened.client)->adapter().device(), here.get());
  expect_message(pair, opened, true);
}

TEST(EndPointChannels, ANameIsUsedOnce) {
  const EndPointPair pair;
  const auto taken = pair.client->open_channel({.name = "data"}, tiny());
  EXPECT_EQ(taken.code(), Errc::kInvalidArgument);
  EXPECT_THAT(taken.error().context, HasSubstr("'data' already exists"));
  ASSERT_TRUE(open_both(pair, {.name = "bulk"}, {.name = "bulk"}).client.has_value());
  EXPECT_EQ(pair.client->open_channel({.name = "bulk"}, tiny()).code(), Errc::kInvalidArgument);
  EXPECT_EQ(pair.client->open_channel({.name = ""}, tiny()).code(), Errc::kInvalidArgument);
  EXPECT_EQ(pair.client->open_channel({.name = "x", .adapter = {.send_depth = 0}}, tiny()).code(),
            Errc::kInvalidArgument);
  EXPECT_EQ(pair.client->open_channel({.name = "y", .pooled_receives = true}, tiny()).code(), Errc::kInvalidArgument);
}

TEST(EndPointChannels, TheirNumberIsLimited) {
  const EndPointPair pair;
  for (std::size_t i = 2; i < HcaConfig::kMaxChannels; ++i) {
    const ChannelConfig config{.name = std::to_string(i), .adapter = {.send_depth = 1, .recv_depth = 1}};
    ASSERT_TRUE(open_both(pair, config, config).client.has_value()) << i;
  }
  const auto refused = pair.client->open_channel({.name = "more"}, tiny());
  EXPECT_EQ(refused.code(), Errc::kInvalidArgument);
  EXPECT_THAT(refused.error().context, HasSubstr("at most 64"));
}

TEST(EndPointChannels, APeerThatCannotOpenOneGivesTheReason) {
  const EndPointPair pair;
  const int too_deep = pair.device->limits().max_cqe;  // for each queue: not above the limit of one request queue
  const ChannelConfig impossible{
      .name = "bulk", .adapter = {.max_inline_bytes = 65535}, .own_completion_queue = too_deep > 0};
  const Opened opened = open_both(pair, {.name = "bulk"}, impossible);
  EXPECT_FALSE(opened.server.has_value());
  EXPECT_EQ(opened.client.code(), Errc::kPeerRefused);
  EXPECT_THAT(opened.client.error().context, HasSubstr("max_inline_bytes"));
  EXPECT_EQ(pair.client->channel("bulk"), nullptr);
  EXPECT_TRUE(pair.client->alive());
  EXPECT_EQ(open_both(pair, {.name = "bulk"}, {.name = "bulk"}).client.code(), Errc::kInvalidArgument) << "used up";
  EXPECT_TRUE(open_both(pair, {.name = "other"}, {.name = "other"}).client.has_value());
}

TEST(EndPointChannels, APeerThatDoesNotOpenItIsATimeout) {
  const EndPointPair pair;
  EXPECT_EQ(pair.client->open_channel({.name = "alone"}, tiny()).code(), Errc::kTimeout);
  EXPECT_EQ(pair.server->open_channel({.name = "alone too"}, tiny()).code(), Errc::kTimeout);
  EXPECT_TRUE(pair.client->alive());
}

TEST(EndPointChannels, StopEndsTheOpeningOfOne) {
  const EndPointPair pair;
  auto opening =
      std::async(std::launch::async, [&] { return pair.client->open_channel({.name = "bulk"}, soon()).code(); });
  pair.client->stop();
  const auto code = opening.get();
  EXPECT_TRUE(code == Errc::kStopped) << code.message();
  EXPECT_EQ(pair.client->open_channel({.name = "late"}, tiny()).code(), Errc::kStopped);
}

TEST(EndPointChannels, StopEndsTheWaitOnOne) {
  HcaConfig config;
  config.polling_mode = PollingMode::kCompletionChannel;
  const EndPointPair pair(config);
  const ChannelConfig own{.name = "own", .own_completion_queue = true};
  const Opened opened = open_both(pair, own, own);
  ASSERT_TRUE(opened.client.has_value());
  auto waiting =
      std::async(std::launch::async, [&] { return pair.client->next(**opened.client, Deadline::never()).code(); });
  pair.client->stop();
  EXPECT_EQ(waiting.get(), Errc::kStopped);
}

TEST(EndPointChannels, OnlyAChannelWithItsOwnQueueIsWaitedForByName) {
  const EndPointPair pair;
  const auto refused = pair.client->next(data_of(*pair.client), tiny());
  EXPECT_EQ(refused.code(), Errc::kWrongState);
  EXPECT_THAT(refused.error().context, HasSubstr("own_completion_queue"));
}

// ---- Texts about channels

ChannelMessage example(ChannelMessage::Step step) {
  ChannelMessage message{.name = "bulk", .step = step};
  if (step == ChannelMessage::Step::kRefused) message.refusal = {.code = Errc::kBeyondDeviceLimit, .reason = "no"};
  if (step == ChannelMessage::Step::kOffer) message.description.channels = {{.name = "bulk", .address = {}}};
  return message;
}

TEST(ChannelMessage, IsDecodedAsItWasEncoded) {
  for (const auto step : {ChannelMessage::Step::kReady, ChannelMessage::Step::kRefused}) {
    const auto read = ChannelMessage::decode(example(step).encode());
    ASSERT_TRUE(read.has_value()) << read.error().message();
    EXPECT_EQ(read->name, "bulk");
    EXPECT_EQ(read->step, step);
  }
  EXPECT_EQ(ChannelMessage::decode(example(ChannelMessage::Step::kRefused).encode())->refusal.reason, "no");
}

TEST(ChannelMessage, TruncatedOrTooLongIsRefused) {
  for (const auto step : {ChannelMessage::Step::kReady, ChannelMessage::Step::kRefused, ChannelMessage::Step::kOffer}) {
    std::vector<std::byte> bytes = example(step).encode();
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      EXPECT_EQ(ChannelMessage::decode(std::span(bytes).first(length)).code(), Errc::kBadMessage) << length;
    }
    bytes.push_back(std::byte{0});
    EXPECT_EQ(ChannelMessage::decode(bytes).code(), Errc::kBadMessage);
  }
}

TEST(ChannelMessage, OfUnknownKindIsRefused) {
  std::vector<std::byte> bytes = example(ChannelMessage::Step::kReady).encode();
  bytes.back() = std::byte{9};
  EXPECT_EQ(ChannelMessage::decode(bytes).code(), Errc::kBadMessage);
}

}  // namespace
}  // namespace rdmacomm
