#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <future>

#include "endpoint/endpoint_core.h"
#include "endpoint/endpoint_pair.h"
#include "support/polling_modes.h"

namespace rdmacomm {
namespace {

using testing::as_bytes;
using testing::as_text;
using testing::control_of;
using testing::data_of;
using testing::EndPointPair;
using ::testing::HasSubstr;
using testing::soon;
using testing::tiny;

RDMABuffer make_buffer(const RDMADevice& device, RemoteAccess access = RemoteAccess::kNone,
                       const std::string& name = "buffer") {
  auto buffer =
      RDMABuffer::allocate(device, {.name = name, .block_bytes = 64, .block_count = 8, .remote_access = access});
  EXPECT_TRUE(buffer.has_value()) << buffer.status().message();
  return std::move(*buffer);
}

Completion wait_one(EndPointCore& endpoint) {
  const auto completion = endpoint.next(soon());
  EXPECT_TRUE(completion) << completion.status().message();
  return completion ? *completion : Completion();
}

Status wait_none(EndPointCore& endpoint, Deadline deadline) {
  return endpoint.next(deadline).status();
}

class EachPollingMode : public ::testing::TestWithParam<PollingMode> {
 protected:
  static HcaConfig config() {
    HcaConfig config;
    config.polling_mode = GetParam();
    return config;
  }
};
INSTANTIATE_TEST_SUITE_P(EndPoint, EachPollingMode, testing::every_polling_mode(),
                         [](const auto& mode) { return testing::instance_name(mode.param); });

TEST(EndPoint, FindsItsChannelsByName) {
  const EndPointPair pair;
  ASSERT_TRUE(pair.connected.ok()) << pair.connected.message();
  EXPECT_EQ(data_of(*pair.client).name(), "data");
  EXPECT_EQ(control_of(*pair.client).name(), "control");
  EXPECT_EQ(pair.client->channel("other"), nullptr);
  EXPECT_EQ(data_of(*pair.client).adapter().remote_address()->qpn, data_of(*pair.server).adapter().address().qpn);
  EXPECT_TRUE(pair.client->alive());
  EXPECT_TRUE(pair.client->status().ok());
}

TEST(EndPoint, ChannelsAreMatchedByNameNotByOrder) {
  HcaConfig other_order;
  std::swap(other_order.channels[0], other_order.channels[1]);
  const EndPointPair pair(HcaConfig{}, other_order);
  ASSERT_TRUE(pair.connected.ok()) << pair.connected.message();
  EXPECT_EQ(data_of(*pair.client).adapter().remote_address()->qpn, data_of(*pair.server).adapter().address().qpn);
}

TEST(EndPoint, OtherChannelNamesAreRefusedWithBothLists) {
  HcaConfig other;
  other.channels = {{.name = "bulk"}, {.name = "control"}};
  const EndPointPair pair(HcaConfig{}, other);
  EXPECT_EQ(pair.connected.code(), Errc::kIncompatiblePeer);
  EXPECT_THAT(pair.connected.message(), HasSubstr("control, data"));
  EXPECT_THAT(pair.connected.message(), HasSubstr("bulk, control"));
}

TEST(EndPoint, SendsRegionsAndPrivateDataToThePeer) {
  const auto device = testing::open_soft_device();
  HcaConfig config;
  config.published = {{.name = "inbox", .region = {.address = 4096, .length = 100, .rkey = 7}}};
  config.private_data = {std::byte{1}, std::byte{2}};
  const EndPointPair pair(config, HcaConfig{});
  ASSERT_TRUE(pair.server->remote_region("inbox"));
  EXPECT_EQ(pair.server->remote_region("inbox")->rkey, 7U);
  const auto none = pair.server->remote_region("outbox");
  EXPECT_EQ(none.code(), Errc::kIncompatiblePeer);
  EXPECT_THAT(none.error().context, HasSubstr("has published no region 'outbox'; its regions: inbox"));
  EXPECT_EQ(pair.server->peer_private_data().size(), 2U);
  EXPECT_THAT(pair.client->remote_region("inbox").error().context, HasSubstr("its regions: none"));
}

TEST(EndPoint, NamesItsPeer) {
  const EndPointPair pair;
  const std::string peer = pair.client->peer();
  EXPECT_THAT(peer, HasSubstr("127.0.0.1:"));
  EXPECT_THAT(peer, HasSubstr("pid " + std::to_string(getpid())));
  EXPECT_THAT(peer, HasSubstr("data QPN 0x"));
}

TEST(EndPoint, InvalidConfigurationsAreRefused) {
  testing::TcpPair tcp;
  HcaConfig config;
  config.channels.clear();
  const auto device = testing::open_soft_device();
  auto made = EndPointCore::create({.device = device, .connector = std::move(tcp.client), .config = config});
  EXPECT_EQ(made.code(), Errc::kInvalidArgument);
}

TEST(EndPoint, CarriesMessagesAndBarriersByTcp) {
  const EndPointPair pair;
  ASSERT_TRUE(pair.client->send_message(as_bytes("plan"), soon()).ok());
  EXPECT_EQ(as_text(*pair.server->receive_message(soon())), "plan");
  auto server = std::async(std::launch::async, [&] { return pair.server->sync_with_peer("go", soon()); });
  EXPECT_TRUE(pair.client->sync_with_peer("go", soon()).ok());
  EXPECT_TRUE(server.get().ok());
}

TEST_P(EachPollingMode, WaitsForCompletionsOfAllChannels) {
  const EndPointPair pair(config());
  const auto from = make_buffer(pair.device);
  const auto to = make_buffer(pair.device);
  std::memcpy(from.data(), "hello", 5);
  ASSERT_TRUE(data_of(*pair.server).post_recv(to.at(0), {.id = 1}));
  ASSERT_TRUE(control_of(*pair.server).post_recv(to.at(1), {.id = 2}));
  auto received = std::async(std::launch::async, [&] {
    const Completion first = wait_one(*pair.server);
    const Completion second = wait_one(*pair.server);
    return first.id + second.id;
  });
  ASSERT_TRUE(data_of(*pair.client).post_send(from.at(0).first(5), {.id = 3}));
  EXPECT_EQ(wait_one(*pair.client).id, 3U);
  ASSERT_TRUE(control_of(*pair.client).post_send(from.at(0).first(5), {.id = 4}));
  EXPECT_EQ(wait_one(*pair.client).id, 4U);
  EXPECT_EQ(received.get(), 3U);
  EXPECT_EQ(as_text(to.bytes().first(5)), "hello");
}

TEST_P(EachPollingMode, WaitEndsAtItsDeadline) {
  const EndPointPair pair(config());
  const Status waited = wait_none(*pair.client, tiny());
  EXPECT_EQ(waited.code(), Errc::kTimeout);
  EXPECT_THAT(waited.message(), HasSubstr("127.0.0.1:"));
}

TEST_P(EachPollingMode, AWaitWithoutRoomForACompletionIsRefused) {
  const EndPointPair pair(config());
  EXPECT_EQ(pair.client->wait({}, Deadline::never()).code(), Errc::kInvalidArgument);
}

TEST_P(EachPollingMode, StopEndsAWaitOfAnotherThread) {
  const EndPointPair pair(config());
  auto waiter = std::async(std::launch::async, [&] { return wait_none(*pair.client, Deadline::never()).code(); });
  pair.client->stop();
  EXPECT_EQ(waiter.get(), Errc::kStopped);
  EXPECT_EQ(wait_none(*pair.client, Deadline::never()).code(), Errc::kStopped);
  EXPECT_TRUE(pair.client->outcome().ok());
}

TEST_P(EachPollingMode, ALostPeerEndsAWaitAndIsNamed) {
  const EndPointPair pair(config());
  auto waiter = std::async(std::launch::async, [&] { return wait_none(*pair.client, Deadline::never()); });
  pair.server->connector().shutdown();  // ends without GOODBYE, like a process that dies
  EndPointPair::watch(*pair.client);
  const Status waited = waiter.get();
  EXPECT_EQ(waited.code(), Errc::kPeerLost);
  EXPECT_THAT(waited.message(), HasSubstr("pid " + std::to_string(getpid())));
  EXPECT_THAT(waited.message(), HasSubstr("closed the connection without notice"));
  EXPECT_FALSE(pair.client->alive());
  EXPECT_FALSE(pair.client->outcome().ok());
}

TEST_P(EachPollingMode, ALocalFailureEndsAWaitAndIsReportedToThePeer) {
  const EndPointPair pair(config());
  auto waiter = std::async(std::launch::async, [&] { return wait_none(*pair.client, Deadline::never()); });
  pair.client->fail(make_error(Errc::kDeviceLost, "the device x is gone"));
  pair.client->fail(make_error(Errc::kLocalQueuePair, "and so is its queue pair"));
  const Status waited = waiter.get();
  EXPECT_EQ(waited.code(), Errc::kDeviceLost);
  EXPECT_EQ(waited.error().context, "the endpoint to " + pair.client->peer() + " has ended: the device x is gone");
  EXPECT_FALSE(pair.client->alive());
  EXPECT_EQ(pair.client->receive_message(soon()).code(), Errc::kDeviceLost);
  EndPointPair::watch(*pair.server);
  EXPECT_EQ(pair.server->status().code(), Errc::kPeerRefused);
  EXPECT_THAT(pair.server->status().message(), HasSubstr("the device x is gone"));
  EXPECT_TRUE(pair.client->close().ok());
  EXPECT_FALSE(pair.client->outcome().ok());
  EXPECT_EQ(pair.client->status().code(), Errc::kDeviceLost);
}

TEST(EndPoint, KnowsItsQueues) {
  HcaConfig config;
  config.channels[1].own_completion_queue = true;
  const EndPointPair pair(config);
  for (const ChannelConfig& each : config.channels) {
    const AdapterCore& adapter = pair.client->channel(each.name)->adapter();
    EXPECT_TRUE(pair.client->uses(adapter.qp()));
    EXPECT_TRUE(pair.client->uses(adapter.send_cq().get()));
    EXPECT_FALSE(pair.server->uses(adapter.qp()));
    EXPECT_FALSE(pair.server->uses(adapter.send_cq().get()));
  }
}

TEST_P(EachPollingMode, MessagesBeforeAnOrderlyEndAreDeliveredFirst) {
  const EndPointPair pair(config());
  const auto from = make_buffer(pair.device);
  const auto to = make_buffer(pair.device);
  ASSERT_TRUE(data_of(*pair.server).post_recv(to.at(0), {.id = 1}));
  ASSERT_TRUE(data_of(*pair.client).post_send(from.at(0), {.id = 2}));
  EXPECT_EQ(wait_one(*pair.client).id, 2U);
  EXPECT_TRUE(pair.client->close().ok());
  EndPointPair::watch(*pair.server);
  EXPECT_FALSE(pair.server->alive());
  EXPECT_EQ(wait_one(*pair.server).id, 1U);
  const Status waited = wait_none(*pair.server, Deadline::never());
  EXPECT_EQ(waited.code(), Errc::kPeerClosed);
  EXPECT_THAT(waited.message(), HasSubstr("closed the connection"));
  EXPECT_TRUE(pair.server->outcome().ok());
}

TEST(EndPoint, AFailedRequestIsACompletion) {
  const EndPointPair pair;
  const auto from = make_buffer(pair.device);
  const auto to = make_buffer(pair.device);  // without remote access
  ASSERT_TRUE(data_of(*pair.client).post_write(from.at(0), to.remote_region(), {.id = 9}));
  const Completion completion = wait_one(*pair.client);
  EXPECT_EQ(completion.id, 9U);
  EXPECT_EQ(completion.error, Errc::kRemoteAccess);
  EXPECT_TRUE(pair.client->alive());
}

TEST(EndPoint, PollAndWaitReturnThePartThatTheyFilled) {
  std::vector<std::uint64_t> ids;
  const EndPointPair pair;
  const auto from = make_buffer(pair.device);
  const auto to = make_buffer(pair.device, RemoteAccess::kWrite);
  for (std::uint64_t id = 0; id < 40; ++id) {
    ASSERT_TRUE(data_of(*pair.client).post_write(from.at(0), to.remote_region(), {.id = id}));
  }
  const Deadline deadline = soon();
  std::array<Completion, 7> batch;
  while (ids.size() < 40 && !deadline.passed()) {
    const Polled polled = pair.client->poll(batch);
    ASSERT_TRUE(polled);
    for (const Completion& each : polled) ids.push_back(each.id);
    if (ids.size() == 40) break;
    const auto waited = pair.client->wait(std::span(batch).first(3), deadline);
    ASSERT_TRUE(waited);
    EXPECT_EQ(waited->data(), batch.data());
    for (const Completion& each : *waited) ids.push_back(each.id);
  }
  ASSERT_EQ(ids.size(), 40U);
  EXPECT_EQ(ids.back(), 39U);
}

TEST(EndPoint, AChannelWithItsOwnQueueIsPolledByItself) {
  HcaConfig config;
  config.channel("data").own_completion_queue = true;
  const EndPointPair pair(config);
  const auto from = make_buffer(pair.device);
  const auto to = make_buffer(pair.device, RemoteAccess::kWrite);
  ASSERT_TRUE(data_of(*pair.client).post_write(from.at(0), to.remote_region(), {.id = 5}));
  EXPECT_EQ(wait_none(*pair.client, tiny()).code(), Errc::kTimeout);
  std::array<Completion, 4> completions;
  const Deadline deadline = soon();
  Polled polled;
  while (polled && polled.empty() && !deadline.passed()) polled = data_of(*pair.client).poll(completions);
  ASSERT_EQ(polled.size(), 1U);
  EXPECT_EQ(polled[0].id, 5U);
  ASSERT_TRUE(data_of(*pair.client).post_recv(from.at(0), {.id = 6}));
  EXPECT_TRUE(pair.client->close().ok());
  EXPECT_EQ(data_of(*pair.client).outstanding_recvs(), 0);
}

TEST(EndPoint, CloseLeavesNothingOutstanding) {
  const EndPointPair pair;
  const auto buffer = make_buffer(pair.device);
  for (std::uint64_t id = 0; id < 8; ++id) {
    ASSERT_TRUE(data_of(*pair.client).post_recv(buffer.at(id), {.id = id}));
    ASSERT_TRUE(control_of(*pair.client).post_recv(buffer.at(id), {.id = id}));
  }
  const Status closed = pair.client->close();
  EXPECT_TRUE(closed.ok()) << closed.message();
  EXPECT_EQ(data_of(*pair.client).outstanding_recvs(), 0);
  EXPECT_EQ(control_of(*pair.client).outstanding_recvs(), 0);
  EXPECT_EQ(data_of(*pair.client).post_send(buffer.at(0), {.id = 1}), Errc::kNotConnected);
  EXPECT_TRUE(pair.client->close().ok());
  EXPECT_EQ(pair.client->status().code(), Errc::kStopped);
}

TEST(EndPoint, PostsFailOnceItWasStopped) {
  const EndPointPair pair;
  const auto buffer = make_buffer(pair.device);
  pair.client->stop();
  EXPECT_EQ(data_of(*pair.client).post_send(buffer.at(0), {.id = 1}), Errc::kNotConnected);
  EXPECT_EQ(pair.client->send_message(as_bytes("x"), soon()).code(), Errc::kStopped);
}

TEST(EndPoint, ThreadModesLeavePollingToTheSession) {
  HcaConfig config;
  config.thread_mode = ThreadMode::kThreadPerEndPoint;
  const EndPointPair pair(config);
  std::array<Completion, 1> completions;
  EXPECT_EQ(pair.client->poll(completions).outcome(), Errc::kWrongState);
  EXPECT_EQ(wait_none(*pair.client, soon()).code(), Errc::kWrongState);
}

TEST(EndPoint, KeepsItsDeviceOpen) {
  std::shared_ptr<EndPointCore> kept;
  {
    EndPointPair pair;
    kept = pair.client;
  }
  EXPECT_EQ(kept->device()->name(), "soft0");
  EXPECT_TRUE(kept->close().ok());
}

}  // namespace
}  // namespace rdmacomm
