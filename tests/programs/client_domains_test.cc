// Clients that know address and key of memory that a server has registered for other clients.
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <functional>
#include <future>

#include "base/wake_event.h"
#include "lat_bw_benchmark/client.h"
#include "lat_bw_benchmark/messages.h"
#include "lat_bw_benchmark/server.h"
#include "lat_bw_benchmark/workspace.h"
#include "ping_pong/client.h"
#include "ping_pong/server.h"
#include "ping_pong/terms.h"
#include "programs/short_plan.h"
#include "rdma_copy/frames.h"
#include "rdma_copy/messages.h"
#include "rdma_copy/server.h"
#include "rdmacomm/rdmacomm.h"
#include "support/acting_session.h"

namespace rdmacomm::client_domains {
namespace {

Deadline soon() {
  return Deadline::after(std::chrono::seconds(30));
}

/// A client that completes the handshake of a server.
struct Intruder : ActingSession<ClientSession> {
  Intruder(std::uint16_t port, std::function<void(HcaConfig&)> says)
      : ActingSession(SessionOptions{.device = {.name = "soft0"}, .address = {"127.0.0.1", port}}),
        configure(std::move(says)) {}
  ~Intruder() override { stop(); }
  Status lazy_config_hca(HcaConfig& hca, const PeerInfo&) override {
    configure(hca);
    return {};
  }
  /// Whether a READ from the server succeeds. If it does not, the server may end the connection before the client takes
  /// the completion. That also counts as refused.
  bool reads(const EndPoint& endpoint, RDMAChannel& channel, RemoteRegion region) {
    const auto mine = RDMABuffer::allocate(device(), {.block_bytes = 64}).value();
    region.length = 64;
    EXPECT_TRUE(channel.post_read(mine.at(0), region, {.id = 1}));
    for (;;) {
      const auto completion = endpoint.next(soon());
      EXPECT_NE(completion.code(), Errc::kTimeout);
      if (!completion) return false;
      if (completion->operation == Operation::kRead) return completion->ok();
    }
  }

  const std::function<void(HcaConfig&)> configure;
};

using IntruderPtr = std::unique_ptr<Intruder>;

/// Memory on a server's device that belongs to none of its clients.
struct ServersDevice {
  RDMADevice device = RDMADevice::open({.name = "soft0"}).value();
  RDMABuffer secret = RDMABuffer::allocate(device, {.block_bytes = 4096, .remote_access = RemoteAccess::kRead}).value();

  [[nodiscard]] programs::ConnectionFlags flags() const {
    programs::ConnectionFlags flags;
    flags.session.shared_device = device;
    flags.session.address = {"127.0.0.1", 0};
    flags.keep_serving = false;
    return flags;
  }
};

constexpr programs::ModeFlags kModes{.polling = PollingMode::kAdaptive};

programs::ConnectionFlags flags_to(std::uint16_t port) {
  programs::ConnectionFlags flags;
  flags.session.device.name = "soft0";
  flags.session.address = {"127.0.0.1", port};
  return flags;
}

/// A server that ends after one client's run.
template <typename Options>
std::future<Status> start(Status (*run)(const Options&), const ServersDevice& on, std::uint16_t& port) {
  std::promise<std::uint16_t> listening;
  auto outcome = std::async(std::launch::async, [&on, run, port_of = &listening] {
    return run({.connection = on.flags(),
                .modes = kModes,
                .listening = [port_of](std::uint16_t at) { port_of->set_value(at); },
                .rest = std::chrono::hours(1)});
  });
  port = listening.get_future().get();
  return outcome;
}

TEST(ClientDomains, AClientOfPingPongReachesItsOwnMemoryAlone) {
  const ServersDevice servers;
  std::uint16_t port = 0;
  auto outcome = start<ping_pong::ServerOptions>(ping_pong::run_server, servers, port);
  const auto terms = [](HcaConfig& hca) { hca.private_data = ping_pong::Terms{.size = 64}.encode(); };
  std::array<IntruderPtr, 3> players;
  std::array<EndPoint, 3> ends;
  for (std::size_t i = 0; i < players.size(); ++i) {
    players[i] = std::make_unique<Intruder>(port, terms);
    ends[i] = players[i]->connect().value();
  }
  const RemoteRegion victim = *ends[0].remote_region("ping_pong");
  EXPECT_TRUE(players[0]->reads(ends[0], ends[0].channel(), victim));
  EXPECT_FALSE(players[1]->reads(ends[1], ends[1].channel(), victim));
  EXPECT_FALSE(players[2]->reads(ends[2], ends[2].channel(), servers.secret.remote_region()));
  testing::internal::CaptureStdout();
  EXPECT_TRUE(ping_pong::run_client(flags_to(port), {.size = 64, .iterations = 10}, kModes).ok());
  EXPECT_TRUE(outcome.get().ok());
  (void)testing::internal::GetCapturedStdout();
}

TEST(ClientDomains, AClientOfTheBenchmarkReachesItsWorkspaceAlone) {
  const ServersDevice servers;
  std::uint16_t port = 0;
  auto outcome = start<benchmark::ServerOptions>(benchmark::run_server, servers, port);
  const benchmark::Plan plan = benchmark::short_plan();
  std::unique_ptr<benchmark::Workspace> workspace;
  IntruderPtr client;
  client = std::make_unique<Intruder>(port, [&](HcaConfig& hca) {
    workspace = benchmark::Workspace::create(client->device(), plan).value();
    hca.publish(workspace->buffer());
    hca.channels = {ChannelConfig{.name = kDataChannel}};
    hca.private_data = benchmark::pack(plan);
  });
  const auto endpoint = client->connect().value();
  EXPECT_TRUE(client->reads(endpoint, endpoint.channel(), *endpoint.remote_region(benchmark::kWorkspace)));
  EXPECT_FALSE(client->reads(endpoint, endpoint.channel(), servers.secret.remote_region()));
  client->stop();
  workspace.reset();  // released before its device
  client.reset();
  testing::internal::CaptureStdout();
  const Status measured =
      benchmark::run_client({.connection = flags_to(port), .modes = kModes, .plan = plan, .json_path = ""});
  EXPECT_TRUE(measured.ok()) << measured.message();
  EXPECT_TRUE(outcome.get().ok());
  (void)testing::internal::GetCapturedStdout();
}

TEST(ClientDomains, AClientOfACopyReachesItsOwnMemoryAlone) {
  const ServersDevice servers;
  const std::filesystem::path root = testing::TempDir();
  const auto stop = WakeEvent::create().value();
  std::promise<std::uint16_t> listening;
  auto outcome = std::async(std::launch::async, [&, port_of = &listening] {
    return copying::run_server({.connection = servers.flags(),
                                .modes = kModes,
                                .root = root,
                                .listening = [port_of](std::uint16_t at) { port_of->set_value(at); }},
                               stop.fd());
  });
  const auto client = std::make_unique<Intruder>(listening.get_future().get(), [](HcaConfig& hca) {
    hca.channels = {copying::stream_options().channel(copying::kChannel)};
    hca.channels[0].own_completion_queue = false;
    hca.private_data = copying::identification();
  });
  const auto endpoint = client->connect().value();
  EXPECT_FALSE(client->reads(endpoint, endpoint.channel(copying::kChannel), servers.secret.remote_region()));
  stop.signal();
  EXPECT_TRUE(outcome.get().ok());
}

}  // namespace
}  // namespace rdmacomm::client_domains
