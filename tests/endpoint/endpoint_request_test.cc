// Posting a request on an endpoint and waiting for it: completions of other requests are kept until a later call takes
// them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <cstring>

#include "endpoint/endpoint_pair.h"
#include "rdmacomm/buffer.h"

namespace rdmacomm {
namespace {

using namespace std::chrono_literals;
using testing::control_of;
using testing::data_of;
using ::testing::ElementsAre;
using testing::EndPointPair;
using ::testing::IsEmpty;
using testing::soon;

/// Two endpoints. The server's messages 10 and 11 have arrived at the client before the client's own request completes.
struct Crowded {
  explicit Crowded(const HcaConfig& config = {}, const char* name = "data")
      : pair(config), channel(*pair.client->channel(name)), peer(*pair.server->channel(name)) {
    buffer = RDMABuffer::allocate(pair.device, {.block_bytes = 64, .block_count = 4}).value();
    for (const std::uint64_t id : {10U, 11U}) {
      EXPECT_TRUE(channel.post_recv(buffer.at(0), {.id = id}));
      EXPECT_TRUE(peer.send(buffer.at(1), {.id = id}).wait(soon()));
    }
    EXPECT_TRUE(peer.post_recv(buffer.at(3)));
    const auto sent = channel.send(buffer.at(2), {.id = 12}).wait(soon());
    EXPECT_TRUE(sent) << sent.status().message();
    EXPECT_EQ(sent ? sent->id : 0, 12U);
  }

  EndPointPair pair;
  ChannelCore& channel;
  ChannelCore& peer;
  RDMABuffer buffer;
};

template <typename Completions>
std::vector<std::uint64_t> ids(const Completions& completions) {
  std::vector<std::uint64_t> all;
  for (const Completion& each : completions) all.push_back(each.id);
  return all;
}

TEST(EndPointRequest, PollReturnsKeptCompletions) {
  const Crowded crowded;
  std::array<Completion, 8> room;
  EXPECT_THAT(ids(crowded.pair.client->poll(room)), ElementsAre(10, 11));
  EXPECT_THAT(ids(crowded.pair.client->poll(room)), IsEmpty());
}

TEST(EndPointRequest, WaitReturnsKeptCompletions) {
  const Crowded crowded;
  std::array<Completion, 1> room;
  EXPECT_THAT(ids(*crowded.pair.client->wait(room, soon())), ElementsAre(10));
  EXPECT_EQ(crowded.pair.client->next(soon())->id, 11U);
  EXPECT_EQ(crowded.pair.client->next(Deadline::after(0ms)).code(), Errc::kTimeout);
}

TEST(EndPointRequest, AnApplicationsLoopGetsKeptCompletions) {
  HcaConfig config;
  config.polling_mode = PollingMode::kEpoll;
  const Crowded crowded(config);
  std::array<Completion, 8> room;
  EXPECT_THAT(ids(*crowded.pair.client->poll_before_sleep(room)), ElementsAre(10, 11));
  EXPECT_THAT(ids(*crowded.pair.client->poll_before_sleep(room)), IsEmpty());
}

TEST(EndPointRequest, AChannelWithItsOwnQueueKeepsItsCompletions) {
  HcaConfig config;
  config.channels.push_back({.name = "own", .own_completion_queue = true});
  for (const bool by_poll : {true, false}) {
    const Crowded crowded(config, "own");
    std::array<Completion, 8> room;
    EXPECT_THAT(ids(crowded.pair.client->poll(room)), IsEmpty());
    if (by_poll) {
      EXPECT_THAT(ids(crowded.channel.poll(room)), ElementsAre(10, 11));
    } else {
      EXPECT_EQ(crowded.pair.client->next(crowded.channel, soon())->id, 10U);
      EXPECT_EQ(crowded.pair.client->next(crowded.channel, soon())->id, 11U);
    }
    EXPECT_THAT(ids(crowded.channel.poll(room)), IsEmpty());
    EXPECT_EQ(crowded.pair.client->next(crowded.channel, Deadline::after(0ms)).code(), Errc::kTimeout);
  }
}

TEST(EndPointRequest, AChannelThatSharesItsQueueIsNotPolledAlone) {
  const EndPointPair pair;
  const RDMABuffer buffer = RDMABuffer::allocate(pair.device, {}).value();
  ASSERT_TRUE(data_of(*pair.client).post_recv(buffer.at(0), {.id = 7}));
  ASSERT_TRUE(data_of(*pair.server).send(buffer.at(0).first(1)).wait(soon()));
  std::array<Completion, 8> room;
  const Polled polled = control_of(*pair.client).poll(room);  // must not take the other channel's
  EXPECT_EQ(polled.outcome(), Errc::kWrongState);
  EXPECT_TRUE(polled.empty());
  EXPECT_EQ(control_of(*pair.client).drain(soon()).code(), Errc::kWrongState);
  EXPECT_EQ(pair.client->next(soon())->id, 7U);
}

TEST(EndPointRequest, AChannelOfAnEndPointIsConnectedByIt) {
  const EndPointPair pair;
  EXPECT_EQ(data_of(*pair.client).RDMAChannel::connect({}).code(), Errc::kWrongState);
}

TEST(EndPointRequest, RequestsOfSeveralChannelsAreDistinguished) {
  HcaConfig config;
  config.channels.push_back({.name = "second"});
  const EndPointPair pair(config);
  const RDMABuffer buffer = RDMABuffer::allocate(pair.device, {.block_bytes = 64, .block_count = 4}).value();
  const PostedRequest data = data_of(*pair.client).recv(buffer.at(0));
  const PostedRequest second = pair.client->channel("second")->recv(buffer.at(1));
  std::memcpy(buffer.data() + 128, "dd", 2);
  ASSERT_TRUE(data_of(*pair.server).send(buffer.at(2).first(1)).posted());
  ASSERT_TRUE(pair.server->channel("second")->send(buffer.at(2).first(2)).wait(soon()));
  EXPECT_EQ(second.wait(soon())->bytes, 2U);
  EXPECT_EQ(data.wait(soon())->bytes, 1U);
}

TEST(EndPointRequest, IsRefusedIfAThreadOfTheSessionPolls) {
  HcaConfig config;
  config.thread_mode = ThreadMode::kThreadPerEndPoint;
  config.channels.push_back({.name = "own", .own_completion_queue = true});
  const EndPointPair pair(config);
  const RDMABuffer buffer = RDMABuffer::allocate(pair.device, {}).value();
  const PostedRequest refused = data_of(*pair.client).send(buffer.at(0));
  EXPECT_EQ(refused.posted(), Errc::kWrongState);
  EXPECT_EQ(refused.wait(soon()).code(), Errc::kWrongState);
  EXPECT_EQ(data_of(*pair.client).outstanding_sends(), 0);
  ASSERT_TRUE(pair.server->channel("own")->recv(buffer.at(0)).posted());
  EXPECT_TRUE(pair.client->channel("own")->send(buffer.at(0).first(1)).wait(soon()));
}

TEST(EndPointRequest, ReportsWhyTheEndPointHasEnded) {
  const EndPointPair pair;
  const RDMABuffer buffer = RDMABuffer::allocate(pair.device, {}).value();
  const PostedRequest never = data_of(*pair.server).recv(buffer.at(0));
  pair.client->stop();
  EndPointPair::watch(*pair.server);
  EXPECT_EQ(never.wait(soon()).code(), Errc::kPeerClosed);
  EXPECT_EQ(data_of(*pair.client).send(buffer.at(0)).wait(soon()).code(), Errc::kStopped);
}

TEST(EndPointRequest, CloseDropsKeptCompletions) {
  const Crowded crowded;
  ASSERT_TRUE(crowded.pair.client->close());
  std::array<Completion, 8> room;
  EXPECT_THAT(ids(crowded.pair.client->poll(room)), IsEmpty());
}

}  // namespace
}  // namespace rdmacomm
