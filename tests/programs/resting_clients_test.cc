// Servers and clients that do nothing after a valid handshake, disconnect at once, or request much memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <future>
#include <sstream>
#include <thread>

#include "lat_bw_benchmark/client.h"
#include "lat_bw_benchmark/messages.h"
#include "lat_bw_benchmark/server.h"
#include "lat_bw_benchmark/session_parts.h"
#include "ping_pong/client.h"
#include "ping_pong/server.h"
#include "programs/short_plan.h"
#include "rdmacomm/rdmacomm.h"
#include "support/acting_session.h"

namespace rdmacomm::programs {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kMiB = 1 << 20;

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t total = 0;
  std::uint64_t resident = 0;
  file >> total >> resident;
  return resident * static_cast<std::uint64_t>(::getpagesize());
}

ConnectionFlags flags_for(const HostPort& address) {
  ConnectionFlags flags;
  flags.session.device.name = "soft0";
  flags.session.address = address;
  return flags;
}

ModeFlags sleeping() {
  ModeFlags modes;
  modes.polling = PollingMode::kAdaptive;
  return modes;
}

/// A server that ends after one run, on a thread.
template <typename Options>
struct RunningServer {
  RunningServer(Status (*run)(const Options&), milliseconds rest, ThreadMode threads = ThreadMode::kApplication,
                milliseconds place_patience = milliseconds(5000)) {
    std::promise<std::uint16_t> listening;
    outcome = std::async(std::launch::async, [=, port_of = &listening] {
      Options options;
      options.connection = flags_for({"", 0});
      options.modes = {.polling = PollingMode::kAdaptive, .threads = threads};
      options.listening = [port_of](std::uint16_t at) { port_of->set_value(at); };
      options.rest = rest;
      options.place_patience = place_patience;
      return run(options);
    });
    port = listening.get_future().get();
  }

  std::uint16_t port = 0;
  std::future<Status> outcome;
};

/// A client that completes the handshake, and then does nothing.
struct RestingClient : ActingSession<ClientSession> {
  RestingClient(std::uint16_t port, std::vector<std::byte> said, std::size_t published = 0)
      : ActingSession(SessionOptions{.device = {.name = "soft0"},
                                     .tcp = {.connect_timeout = milliseconds(2000)},
                                     .address = {"127.0.0.1", port}}),
        says(std::move(said)),
        published_bytes(published) {}
  ~RestingClient() override { stop(); }
  Status lazy_config_hca(HcaConfig& hca, const PeerInfo&) override {
    hca.private_data = says;
    if (published_bytes == 0) return {};
    auto made = RDMABuffer::allocate(device(), {.name = benchmark::kWorkspace,
                                                .block_bytes = published_bytes,
                                                .remote_access = RemoteAccess::kRead | RemoteAccess::kWrite});
    if (!made) return made.error();
    memory = std::move(*made);
    hca.publish(memory);
    hca.channels = {ChannelConfig{.name = kDataChannel}};  // like a client of the benchmark
    return {};
  }

  const std::vector<std::byte> says;
  const std::size_t published_bytes;
  RDMABuffer memory;
};

using RestingClients = std::vector<std::unique_ptr<RestingClient>>;

/// All at the same time, as unknown clients would.
std::size_t connect_all(const RestingClients& clients) {
  std::vector<std::future<bool>> connecting;
  for (const auto& client : clients) {
    connecting.push_back(std::async(std::launch::async, [&] { return client->connect().has_value(); }));
  }
  std::size_t connected = 0;
  for (auto& each : connecting) connected += each.get() ? 1 : 0;
  return connected;
}

RestingClients resting_players(int count, std::uint16_t port, std::uint64_t size) {
  RestingClients clients;
  for (int i = 0; i < count; ++i) {
    clients.push_back(std::make_unique<RestingClient>(port, ping_pong::Terms{.size = size}.encode()));
  }
  return clients;
}

Status play(const HostPort& server) {
  testing::internal::CaptureStdout();
  const Status outcome = ping_pong::run_client(flags_for(server), {.size = 64, .iterations = 10}, sleeping());
  const std::string said = testing::internal::GetCapturedStdout();
  return outcome;
}

TEST(PingPongServer, IdleClientsTakeNoMemory) {
  RunningServer<ping_pong::ServerOptions> server(ping_pong::run_server, milliseconds(1), ThreadMode::kApplication,
                                                 milliseconds(100));
  const auto unknown_clients = resting_players(8, server.port, 64 * kMiB);
  EXPECT_GE(connect_all(resting_players(1, server.port, 1)),
            1u);  // allocates what a connection itself needs
  const std::uint64_t before = resident_bytes();
  EXPECT_GE(connect_all(unknown_clients), 1u);
  EXPECT_LT(resident_bytes(), before + 64 * kMiB) << "each asks for 64 MiB messages";
  EXPECT_TRUE(play({"127.0.0.1", server.port}).ok());
  EXPECT_TRUE(server.outcome.get().ok());
}

TEST(PingPongServer, ServesOthersBesideIdleClients) {
  RunningServer<ping_pong::ServerOptions> server(ping_pong::run_server, std::chrono::hours(1));
  const auto unknown_clients = resting_players(ping_pong::ServerOptions::kGuestsOfAHost, server.port, 64);
  EXPECT_EQ(connect_all(unknown_clients), unknown_clients.size());
  const Status outcome = play({"::1", server.port});  // another address
  EXPECT_TRUE(outcome.ok()) << outcome.message();
  EXPECT_TRUE(server.outcome.get().ok());
}

TEST(PingPongServer, ServesAnotherHostWhile64ClientsOfOneHostWantPlaces) {
  RunningServer<ping_pong::ServerOptions> server(ping_pong::run_server, milliseconds(1000));
  const auto unknown_clients = resting_players(64, server.port, 64);
  auto connecting = std::async(std::launch::async, [&] { return connect_all(unknown_clients); });
  const Status outcome = play({"::1", server.port});
  EXPECT_TRUE(outcome.ok()) << outcome.message();
  EXPECT_TRUE(server.outcome.get().ok());
  EXPECT_LE(connecting.get(), 64U);
}

TEST(PingPongServer, AnIdleClientGivesItsPlaceToOneOfTheSameHost) {
  RunningServer<ping_pong::ServerOptions> server(ping_pong::run_server, milliseconds(1));
  const auto unknown_clients = resting_players(ping_pong::ServerOptions::kGuestsOfAHost, server.port, 64);
  EXPECT_EQ(connect_all(unknown_clients), unknown_clients.size());
  const Status outcome = play({"127.0.0.1", server.port});
  EXPECT_TRUE(outcome.ok()) << outcome.message();
  EXPECT_TRUE(server.outcome.get().ok());
}

/// Flags of a client that requests a place once, without retries.
ConnectionFlags asking_once(std::uint16_t port) {
  ConnectionFlags flags = flags_for({"127.0.0.1", port});
  flags.session.tcp.connect_timeout = milliseconds(100);
  return flags;
}

// The server gets no sign of activity from a client whose message is in flight.
TEST(PingPongServer, AClientWithLargeMessagesKeepsItsPlaceWhileTheyAreSent) {
  constexpr std::uint64_t kLarge = 44 * kMiB;  // room for one such client
  RunningServer<ping_pong::ServerOptions> server(ping_pong::run_server, milliseconds(1), ThreadMode::kApplication,
                                                 milliseconds(300));
  const auto client = std::make_unique<RestingClient>(server.port, ping_pong::Terms{.size = kLarge}.encode());
  const auto endpoint = client->connect();
  ASSERT_TRUE(endpoint.has_value());
  const auto is_answered = [&](std::uint8_t step) {
    const std::byte question{step};
    const Deadline soon = Deadline::after(std::chrono::seconds(20));
    return (*endpoint).send_message({&question, 1}, soon).ok() && (*endpoint).receive_message(soon).has_value();
  };
  for (const std::uint8_t read_or_fetch_add : {std::uint8_t{4}, std::uint8_t{5}}) {
    const Status refused = ping_pong::run_client(asking_once(server.port), {.size = kLarge}, sleeping());
    EXPECT_THAT(refused.message(), testing::HasSubstr("busy"));
    ASSERT_TRUE(is_answered(read_or_fetch_add));
  }
  (*endpoint).stop();
  EXPECT_FALSE(server.outcome.get().ok());
}

TEST(PingPongServer, AClientThatLeavesAtOnceDoesNotCountAsARun) {
  RunningServer<ping_pong::ServerOptions> server(ping_pong::run_server, milliseconds(1));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(connect_all(resting_players(1, server.port, 64)), 1u);
  EXPECT_TRUE(play({"127.0.0.1", server.port}).ok());
  EXPECT_TRUE(server.outcome.get().ok());
}

constexpr int kManyClients = 40;

/// Captures standard error of the servers, and counts its lines that contain `part`.
class SaidOnError {
 public:
  SaidOnError() { testing::internal::CaptureStderr(); }
  std::size_t end(std::string_view part) {
    text = testing::internal::GetCapturedStderr();
    std::size_t lines = 0;
    std::istringstream all(text);
    for (std::string line; std::getline(all, line);) lines += line.find(part) != std::string::npos ? 1 : 0;
    return lines;
  }
  std::string text;
};

TEST(PingPongServer, ClientsThatLeaveAtOnceDoNotFloodItsOutput) {
  SaidOnError said;
  RunningServer<ping_pong::ServerOptions> server(ping_pong::run_server, milliseconds(1));
  for (int i = 0; i < kManyClients; ++i) EXPECT_EQ(connect_all(resting_players(1, server.port, 64)), 1u);
  EXPECT_TRUE(play({"127.0.0.1", server.port}).ok());
  EXPECT_TRUE(server.outcome.get().ok());
  const std::size_t lines = said.end("had not begun the test");
  EXPECT_GE(lines, 1u) << said.text;
  EXPECT_LE(lines, kManyClients / 4) << said.text;
  EXPECT_THAT(said.text, testing::HasSubstr(" from 127.0.0.1\n")) << "those that were left out";
}

TEST(PingPongServer, AClientThatRepeatsAStepIsRefused) {
  RunningServer<ping_pong::ServerOptions> server(ping_pong::run_server, milliseconds(1000));
  const auto client = std::make_unique<RestingClient>(server.port, ping_pong::Terms{.size = 64}.encode());
  const auto endpoint = client->connect();
  ASSERT_TRUE(endpoint.has_value());
  const std::byte read{4};
  const Deadline soon = Deadline::after(std::chrono::seconds(20));
  for (const bool again : {false, true}) {
    ASSERT_TRUE((*endpoint).send_message({&read, 1}, soon).ok());
    EXPECT_EQ((*endpoint).receive_message(soon).has_value(), !again);
  }
  EXPECT_THAT(server.outcome.get().message(), testing::HasSubstr("asks for the same step again"));
}

Status measure(const ConnectionFlags& connection) {
  testing::internal::CaptureStdout();
  const Status outcome = benchmark::run_client(
      {.connection = connection, .modes = sleeping(), .plan = benchmark::short_plan(), .json_path = ""});
  const std::string said = testing::internal::GetCapturedStdout();
  return outcome;
}

Status measure(const HostPort& server) {
  return measure(flags_for(server));
}

// A client that measures for a long time contacts the server in between.
TEST(BenchmarkClient, MeasuresALongRoundInPartsAndKeepsAllItsLatencies) {
  RunningServer<benchmark::ServerOptions> server(benchmark::run_server, milliseconds(1));
  benchmark::Plan plan = benchmark::short_plan();
  plan.iterations = 100;
  testing::internal::CaptureStdout();
  const Status outcome = benchmark::run_client({.connection = flags_for({"127.0.0.1", server.port}),
                                                .modes = sleeping(),
                                                .plan = plan,
                                                .json_path = "",
                                                .longest_part = std::chrono::nanoseconds(1)});
  const std::string said = testing::internal::GetCapturedStdout();
  EXPECT_TRUE(outcome.ok()) << outcome.message();
  // Iterations, then the minimum, the median, and the 99th percentile, which is only printed for at least 100
  // latencies.
  EXPECT_THAT(said, testing::ContainsRegex("write +half-rt +8 +100( +[0-9.]+){3} ")) << said;
  EXPECT_TRUE(server.outcome.get().ok());
}

std::unique_ptr<RestingClient> resting_measurer(std::uint16_t port) {
  const benchmark::Plan plan = benchmark::short_plan();
  return std::make_unique<RestingClient>(port, benchmark::pack(plan), benchmark::Workspace::bytes_for(plan));
}

TEST(BenchmarkServer, AClientWithoutOrdersIsReplaced) {
  RunningServer<benchmark::ServerOptions> server(benchmark::run_server, milliseconds(1));
  const auto unknown = resting_measurer(server.port);
  EXPECT_TRUE(unknown->connect().has_value());
  const Status outcome = measure({"127.0.0.1", server.port});
  EXPECT_TRUE(outcome.ok()) << outcome.message();
  EXPECT_TRUE(server.outcome.get().ok());
}

/// A client that requests a measurement, and becomes idle before or after the end of the part.
void order(const EndPoint& endpoint, bool to_its_end, std::uint32_t iterations = 1) {
  const auto soon = [] { return Deadline::after(std::chrono::seconds(20)); };
  const benchmark::Order first{.cell = 0, .iterations = iterations, .sequence = 1};
  ASSERT_TRUE(endpoint.send_message(benchmark::pack(first), soon()).ok());
  ASSERT_TRUE(endpoint.receive_message(soon()).has_value()) << "it is ready";
  if (!to_its_end) return;
  ASSERT_TRUE(endpoint.send_message(benchmark::pack(benchmark::Finish{}), soon()).ok());
  ASSERT_TRUE(endpoint.receive_message(soon()).has_value()) << "it reports";
}

TEST(BenchmarkServer, AClientThatOrdersOnceAndIsIdleIsReplaced) {
  benchmark::Plan plan = benchmark::short_plan();
  plan.tests = {benchmark::TestKind::kBw};
  for (const bool to_its_end : {true, false}) {
    SCOPED_TRACE(to_its_end);
    RunningServer<benchmark::ServerOptions> server(
        [](const benchmark::ServerOptions& given) {
          benchmark::ServerOptions options = given;
          options.thinking = milliseconds(1);
          return benchmark::run_server(options);
        },
        milliseconds(1));
    const auto unknown =
        std::make_unique<RestingClient>(server.port, benchmark::pack(plan), benchmark::Workspace::bytes_for(plan));
    const auto endpoint = unknown->connect();
    ASSERT_TRUE(endpoint.has_value()) << endpoint.error().message();
    ASSERT_NO_FATAL_FAILURE(order(*endpoint, to_its_end));
    EXPECT_FALSE(measure({"127.0.0.1", server.port}).ok()) << "the unknown's was the one run";
    unknown->stop();
    EXPECT_THAT(server.outcome.get().message(), testing::HasSubstr("was idle while another client waited"));
  }
}

/// The final message of a server whose client requests a part of `iterations` and then does nothing. If `others_wait`,
/// another client connects meanwhile.
std::string end_of_ordering_and_resting(benchmark::TestKind test, std::uint32_t iterations, bool others_wait,
                                        benchmark::ServerOptions (*times)(benchmark::ServerOptions),
                                        PollingMode polling) {
  benchmark::Plan plan = benchmark::short_plan();
  plan.tests = {test};
  plan.iterations = iterations;
  std::promise<std::uint16_t> listening;
  benchmark::ServerOptions options = times({.connection = flags_for({"", 0}), .rest = milliseconds(1)});
  options.modes.polling = polling;
  options.listening = [&listening](std::uint16_t at) { listening.set_value(at); };
  auto outcome = std::async(std::launch::async, [&] { return benchmark::run_server(options); });
  const std::uint16_t port = listening.get_future().get();
  const auto unknown =
      std::make_unique<RestingClient>(port, benchmark::pack(plan), benchmark::Workspace::bytes_for(plan));
  const auto endpoint = unknown->connect();
  EXPECT_TRUE(endpoint.has_value());
  if (endpoint) order(*endpoint, false, iterations);
  if (others_wait) {
    EXPECT_FALSE(measure({"127.0.0.1", port}).ok()) << "the unknown's was the one run";
    unknown->stop();  // a server that still waits for it ends with another message
  }
  return outcome.get().message();
}

// The server takes part in this measurement: it polls its memory for the client's first message.
TEST(BenchmarkServer, AClientThatOrdersRoundTripsAndSendsNothingIsReplaced) {
  for (const PollingMode polling : {PollingMode::kBusyPoll, PollingMode::kAdaptive}) {
    SCOPED_TRACE(static_cast<int>(polling));
    EXPECT_THAT(
        end_of_ordering_and_resting(
            benchmark::TestKind::kLat, 1, true, [](benchmark::ServerOptions options) { return options; }, polling),
        testing::HasSubstr("was idle while another client waited"));
  }
}

// The server takes part in this measurement, and sees no activity while a message is in flight.
TEST(BenchmarkServer, AClientWithLargeMessagesKeepsItsPlaceWhileTheyAreSent) {
  benchmark::Plan plan = benchmark::short_plan();
  plan.tests = {benchmark::TestKind::kLat};
  plan.sizes = {32 * kMiB};
  plan.queue_depth = 1;
  RunningServer<benchmark::ServerOptions> server(benchmark::run_server, milliseconds(1), ThreadMode::kApplication,
                                                 milliseconds(1000));
  const auto client =
      std::make_unique<RestingClient>(server.port, benchmark::pack(plan), benchmark::Workspace::bytes_for(plan));
  const auto endpoint = client->connect();
  ASSERT_TRUE(endpoint.has_value()) << endpoint.error().message();
  ASSERT_NO_FATAL_FAILURE(order(*endpoint, false));
  EXPECT_THAT(measure(asking_once(server.port)).message(), testing::HasSubstr("busy"));
  EXPECT_TRUE((*endpoint).alive());
  client->stop();
  EXPECT_FALSE(server.outcome.get().ok());
}

// With this number of iterations it could be idle for three hours.
TEST(BenchmarkServer, AClientsPlanDoesNotExtendTheServersIdleLimit) {
  const auto times = [](benchmark::ServerOptions options) {
    options.thinking = options.unseen = milliseconds(1);
    return options;
  };
  EXPECT_THAT(end_of_ordering_and_resting(benchmark::TestKind::kBw, benchmark::Plan::kMaxIterations, true, times,
                                          PollingMode::kBusyPoll),
              testing::HasSubstr("was idle while another client waited"));
}

TEST(BenchmarkServer, DoesNotSpinForeverForAClientThatSendsNothing) {
  const auto times = [](benchmark::ServerOptions options) {
    options.unseen = milliseconds(1);
    return options;
  };
  for (const PollingMode polling : {PollingMode::kBusyPoll, PollingMode::kAdaptive}) {
    SCOPED_TRACE(static_cast<int>(polling));
    EXPECT_THAT(end_of_ordering_and_resting(benchmark::TestKind::kLat, 1, false, times, polling),
                testing::HasSubstr("during a measurement"));
  }
}

// In these modes ServerSession::accept() does not return endpoints that have ended. Their places were lost forever.
TEST(BenchmarkServer, AClientThatLeavesAtOnceDoesNotCountAsARunInAnyMode) {
  for (const ThreadMode threads : {ThreadMode::kThreadPerCompletionQueue, ThreadMode::kThreadPerChannel}) {
    SCOPED_TRACE(static_cast<int>(threads));
    RunningServer<benchmark::ServerOptions> server(benchmark::run_server, milliseconds(1), threads);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(resting_measurer(server.port)->connect().has_value());
    EXPECT_TRUE(measure({"127.0.0.1", server.port}).ok());
    EXPECT_TRUE(server.outcome.get().ok());
  }
}

TEST(BenchmarkServer, AClientThatLeavesAtOnceDoesNotCountAsARun) {
  RunningServer<benchmark::ServerOptions> server(benchmark::run_server, milliseconds(1));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(resting_measurer(server.port)->connect().has_value());
  EXPECT_TRUE(measure({"127.0.0.1", server.port}).ok());
  EXPECT_TRUE(server.outcome.get().ok());
}

TEST(BenchmarkServer, ClientsThatLeaveAtOnceDoNotFloodItsOutput) {
  SaidOnError said;
  RunningServer<benchmark::ServerOptions> server(benchmark::run_server, milliseconds(1));
  for (int i = 0; i < kManyClients; ++i) EXPECT_TRUE(resting_measurer(server.port)->connect().has_value());
  EXPECT_TRUE(measure({"127.0.0.1", server.port}).ok());
  EXPECT_TRUE(server.outcome.get().ok());
  const std::size_t lines = said.end("had not begun a measurement");
  EXPECT_GE(lines, 1u) << said.text;
  EXPECT_LE(lines, kManyClients / 4) << said.text;
  EXPECT_THAT(said.text, testing::HasSubstr(" from 127.0.0.1\n")) << "those that were left out";
}

}  // namespace
}  // namespace rdmacomm::programs
