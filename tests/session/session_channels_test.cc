// Several channels to one peer: opened later, one for each application thread, or striped over devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <numeric>
#include <set>
#include <tuple>

#include "channel/channel_core.h"
#include "endpoint/endpoint_core.h"
#include "session/session_test_tools.h"
#include "softdev/common/api.h"
#include "softdev/host/soft_device.h"
#include "softdev/verbs/soft_verbs.h"
#include "support/polling_modes.h"
#include "support/thread_modes.h"

namespace rdmacomm {
namespace {

using namespace rdmacomm::testing;  // NOLINT(google-build-using-namespace): the tools of this test
using ::testing::HasSubstr;

/// Software devices with other names, in addition to soft0.
const verbs::Api& two_devices() {
  static const verbs::Api api = [] {
    verbs::Api table = softdev::api();
    table.get_device_list = [](int* count) {
      const std::array both = {softdev::DeviceIdentity{.name = "soft0"},
                               softdev::DeviceIdentity{.name = "soft1", .index = 1}};
      if (count != nullptr) *count = static_cast<int>(both.size());
      return softdev::list_devices(both);
    };
    return table;
  }();
  return api;
}

RDMADevice open_named(const char* name) {
  auto device = DeviceCore::open_from(two_devices(), {.name = name});
  EXPECT_TRUE(device.has_value()) << device.status().message();
  return std::move(*device);
}

class Channels : public ::testing::TestWithParam<std::tuple<ThreadMode, PollingMode>> {
 protected:
  void start(const std::function<void(HcaConfig&, bool server)>& change = {}) {
    const auto side = [change](bool is_server) {
      return [=](HcaConfig& hca, const PeerInfo&) {
        std::tie(hca.thread_mode, hca.polling_mode) = GetParam();
        hca.waiting.yield_every = 1;
        hca.shared_queue_key = "all";
        if (change) change(hca, is_server);
        return Status();
      };
    };
    server_.hooks->configure = side(true);
    ASSERT_TRUE(server_->start().ok());
    client_ = make_client(*server_);
    client_.hooks->configure = side(false);
    near_ = client_->connect().value();
    ASSERT_TRUE(server_.hooks->record.wait_for("established"));
    far_ = server_->endpoints().front();
  }
  ~Channels() override {
    client_.reset();
    server_.reset();
  }
  [[nodiscard]] static bool served() { return std::get<0>(GetParam()) != ThreadMode::kApplication; }

  /// A SEND through a channel of this name arrives and completes at both ends.
  void expect_message(const std::string& name, std::uint64_t id) {
    RDMAChannel* here = near_.find_channel(name);
    RDMAChannel* there = far_.find_channel(name);
    ASSERT_TRUE(here != nullptr && there != nullptr) << name;
    const auto from = make_buffer(here->device());
    const auto to = make_buffer(there->device());
    std::memcpy(from.data(), &id, sizeof(id));
    ASSERT_TRUE(there->post_recv(to.at(0), {.id = id}));
    ASSERT_TRUE(here->post_send(from.at(0), {.id = id}));
    hear(near_, *here, "send " + std::to_string(id), *client_);
    hear(far_, *there, "recv " + std::to_string(id), *server_);
    EXPECT_EQ(std::memcmp(to.data(), &id, sizeof(id)), 0);
  }
  template <typename Session>
  void hear(const EndPoint& endpoint, RDMAChannel& channel, const std::string& line, Session& session) {
    if (served()) {
      EXPECT_TRUE(session.hooks->record.wait_for(line)) << line;
      return;
    }
    const bool own = &core_of(channel).adapter().send_cq() != &endpoint.core()->queue()->native();
    const auto completion = own ? endpoint.next(channel, soon()) : endpoint.next(soon());
    ASSERT_TRUE(completion) << completion.status().message();
    EXPECT_TRUE(completion->ok());
    EXPECT_EQ(completion->channel, &channel);
  }
  void open_both(const ChannelConfig& here, const ChannelConfig& there) {
    auto other = std::async(std::launch::async, [&] { return far_.open_channel(there, soon()).status(); });
    const Status opened = near_.open_channel(here, soon()).status();
    EXPECT_TRUE(opened.ok()) << opened.message();
    EXPECT_TRUE(other.get().ok());
  }

  TestServer server_ = make_server();
  TestClient client_;
  EndPoint near_;
  EndPoint far_;
};

INSTANTIATE_TEST_SUITE_P(Modes, Channels,
                         ::testing::Combine(::testing::Values(ThreadMode::kApplication, ThreadMode::kThreadPerChannel,
                                                              ThreadMode::kThreadPerEndPoint,
                                                              ThreadMode::kThreadPerCompletionQueue),
                                            every_polling_mode()),
                         [](const auto& mode) {
                           return thread_mode_name(std::get<0>(mode.param)) + instance_name(std::get<1>(mode.param));
                         });

TEST_P(Channels, AChannelThatIsOpenedLaterIsServedLikeTheOthers) {
  start();
  open_both({.name = "bulk"}, {.name = "bulk"});
  expect_message("bulk", 11);
  expect_message(kDataChannel, 12);
  expect_message(kControlChannel, 13);
  EXPECT_TRUE(near_.close().ok());
  ASSERT_TRUE(server_.hooks->record.wait_for("disconnected ok"));
}

TEST_P(Channels, StripedOverTwoDevices) {
  const std::array devices = {open_named("soft1"), open_named("soft1")};
  start([&](HcaConfig& hca, bool server) {
    hca.channels.push_back({.name = "stripe", .device = devices[server ? 1 : 0]});
  });
  EXPECT_EQ(near_.channel("stripe").device().name(), "soft1");
  expect_message("stripe", 21);
  expect_message(kDataChannel, 22);
  open_both({.name = "more", .device = devices[0]}, {.name = "more", .device = devices[1]});
  expect_message("more", 23);
  EXPECT_TRUE(near_.close().ok());
  ASSERT_TRUE(server_.hooks->record.wait_for("disconnected ok"));
}

TEST_P(Channels, StopIsPromptWithAnyNumberOfThem) {
  start();
  open_both({.name = "bulk"}, {.name = "bulk"});
  const auto left = make_buffer(far_.device());
  ASSERT_TRUE(far_.channel("bulk").post_recv(left.at(0), {.id = 31}));
  server_->stop();
  client_->stop();
  EXPECT_TRUE(server_.hooks->record.wait_for("disconnected ok"));
  EXPECT_EQ(server_.hooks->record.lines().back(), "disconnected ok") << "the last hook that names the endpoint";
  if (served()) {
    EXPECT_EQ(server_.hooks->record.count("failed flushed"), 1);
  }
  near_ = {};
  EXPECT_TRUE(far_.close().ok());
  EXPECT_EQ(far_.channel("bulk").outstanding_recvs(), 0);
}

// The hooks of a channel never overlap, and on_established is called before all of them, whichever threads call them.
TEST(PerChannel, EachChannelHasAThread) {
  std::mutex mutex;
  std::map<std::string, std::set<std::thread::id>> threads;
  const auto server = make_server();
  RDMABuffer memory;
  server.hooks->configure = [](HcaConfig& hca, const PeerInfo&) {
    hca.thread_mode = ThreadMode::kThreadPerChannel;
    hca.polling_mode = PollingMode::kCompletionChannel;
    hca.threads.name = "queue";
    return Status();
  };
  server.hooks->connecting = [&](const EndPoint& endpoint) {
    memory = make_buffer(endpoint.device());
    for (RDMAChannel* each : endpoint.channels()) EXPECT_TRUE(each->post_recv(memory.at(0), {.id = 1}));
    return Status();
  };
  server.hooks->received = [&](const EndPoint&, const Completion& completion) {
    const std::lock_guard lock(mutex);
    threads[completion.channel->name()].insert(std::this_thread::get_id());
  };
  ASSERT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  const auto endpoint = client->connect().value();
  const auto from = make_buffer(endpoint.device());
  for (RDMAChannel* each : endpoint.channels()) ASSERT_TRUE(each->post_send(from.at(0), {.id = 1}));
  ASSERT_TRUE(server.hooks->record.wait_for("recv 1", 2));
  const auto lines = server.hooks->record.lines();
  EXPECT_LT(std::ranges::find(lines, "established"), std::ranges::find(lines, "recv 1"));
  client->stop();
  server->stop();
  ASSERT_EQ(threads.size(), 2U);
  EXPECT_NE(threads[kControlChannel], threads[kDataChannel]);
}

TEST(Striping, BothEndsUseTheSameNames) {
  const RDMADevice second = open_named("soft1");
  for (const bool server_has_it : {false, true}) {
    const auto server = make_server();
    ASSERT_TRUE(server->start().ok());
    const auto client = make_client(*server);
    const auto striped = [&](HcaConfig& hca, const PeerInfo&) {
      hca.channels.push_back({.name = "stripe", .device = second});
      return Status();
    };
    (server_has_it ? server.hooks->configure : client.hooks->configure) = striped;
    const auto refused = client->connect();
    EXPECT_EQ(refused.code(), Errc::kPeerRefused);
    EXPECT_THAT(refused.error().context, HasSubstr("stripe (on another device)"));
  }
}

}  // namespace
}  // namespace rdmacomm
