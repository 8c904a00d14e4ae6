// rdma_recv with a forged sender: wrong checksums, wrong totals, other versions, early disconnects. And rdma_send with
// a forged receiver.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <future>
#include <numeric>
#include <sstream>

#include "pipes/block_store.h"
#include "pipes/outlets.h"
#include "pipes/pipe_streams.h"
#include "pipes/receiver.h"
#include "pipes/sender.h"
#include "rdmacomm/rdmacomm.h"
#include "support/acting_session.h"
#include "support/checksum.h"

namespace rdmacomm::pipes {
namespace {

using testing::HasSubstr;

Deadline soon() {
  return Deadline::after(std::chrono::seconds(20));
}

PipeFlags flags_for(const HostPort& address) {
  PipeFlags flags;
  flags.connection.session.device.name = "soft0";
  flags.connection.session.address = address;
  flags.modes.polling = PollingMode::kAdaptive;
  return flags;
}

/// A receiver that writes to /dev/null, on a thread.
struct RunningReceiver {
  /// forward  receivers to which it forwards the data; then it does not write
  /// handshake  time in which a sender must open its stream
  /// rest  time after which a sender that has sent nothing loses its place
  /// timeout  time to wait for a sender's first byte
  explicit RunningReceiver(const std::vector<HostPort>& forward = {},
                           std::chrono::milliseconds handshake = std::chrono::seconds(20),
                           std::chrono::milliseconds rest = std::chrono::hours(1),
                           std::chrono::milliseconds timeout = std::chrono::seconds(20), bool verbose = false)
      : null(::open("/dev/null", O_WRONLY | O_CLOEXEC)) {
    std::promise<std::uint16_t> listening;
    PipeFlags flags = flags_for({"127.0.0.1", 0});
    flags.connection.session.tcp.handshake_timeout = handshake;
    flags.verbose = verbose;
    outcome = std::async(std::launch::async, [this, flags, forward, rest, timeout, port_of = &listening] {
      return run_receiver({.flags = flags,
                           .timeout = timeout,
                           .rest = rest,
                           .output = forward.empty(),
                           .forward = forward,
                           .output_fd = null,
                           .listening = [port_of](std::uint16_t at) { port_of->set_value(at); }});
    });
    port = listening.get_future().get();
  }
  ~RunningReceiver() {
    if (outcome.valid()) outcome.wait();
    ::close(null);
  }
  std::string says() { return outcome.get().message(); }

  int null;
  std::uint16_t port = 0;
  std::future<Status> outcome;
};

/// A sender that sends what the test specifies.
struct ForgedSender : ActingSession<ClientSession> {
  ForgedSender(std::uint16_t port, std::vector<std::byte> said)
      : ActingSession(SessionOptions{.device = {.name = "soft0"}, .address = {"127.0.0.1", port}}),
        hello(std::move(said)) {}
  ~ForgedSender() override { stop(); }
  Status lazy_config_hca(HcaConfig& hca, const PeerInfo&) override {
    hca.channels = {pipe_channel(sender_stream(Terms{}, 4), {})};
    hca.private_data = hello;
    return {};
  }
  void open() {
    auto connected = connect();
    ASSERT_TRUE(connected.has_value()) << connected.error().message();
    open_stream(*connected);
  }
  void open_stream(EndPoint connected) {
    endpoint = std::move(connected);
    auto opened = RDMAStream::open(endpoint, endpoint.channel(kChannel), sender_stream(Terms{}, 4), soon());
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    stream = std::move(*opened);
  }
  /// Sends some bytes, and `total` as their description. Returns the verdict.
  std::string send(std::string_view text, const Total& total) {
    auto memory = RDMABuffer::allocate(device(), {});
    EXPECT_TRUE(memory.has_value());
    const auto keep = std::make_shared<RDMABuffer>(std::move(*memory));
    std::memcpy(keep->data(), text.data(), text.size());
    EXPECT_TRUE(stream.write_from(keep->at(0).first(static_cast<std::uint32_t>(text.size())), keep, soon()).ok());
    EXPECT_TRUE(endpoint.send_message(total.encode(), soon()).ok());
    EXPECT_TRUE(stream.finish(soon()).ok());
    const auto verdict = endpoint.receive_message(soon());
    if (!verdict) return verdict.error().message();
    return Verdict::decode(*verdict)->failure.value_or("fine");
  }

  const std::vector<std::byte> hello;
  EndPoint endpoint;
  RDMAStream stream;
};

std::optional<std::uint64_t> sum_of(std::string_view text) {
  programs::Checksum checksum(true);
  checksum.update(std::as_bytes(std::span(text)));
  return checksum.value();
}

TEST(PipeReceiver, ComparesTheChecksum) {
  for (const bool right : {true, false}) {
    RunningReceiver receiver;
    ForgedSender sender(receiver.port, Terms{}.encode());
    sender.open();
    const std::string verdict = sender.send("hello", {.bytes = 5, .checksum = sum_of(right ? "hello" : "hallo")});
    sender.endpoint.stop();
    const std::string expected = right ? "ok" : "the checksums differ";
    EXPECT_THAT(receiver.says(), HasSubstr(expected));
    EXPECT_THAT(verdict, HasSubstr(right ? "fine" : expected));
  }
}

/// A receiver that only forwards does not check the bytes. The receivers that write them do, and all programs of the
/// chain get the result.
TEST(PipeReceiver, LeavesTheChecksumToTheReceiversBehindIt) {
  for (const bool right : {true, false}) {
    RunningReceiver last;
    RunningReceiver middle({{"127.0.0.1", last.port}});
    ForgedSender sender(middle.port, Terms{}.encode());
    sender.open();
    const std::string verdict = sender.send("hello", {.bytes = 5, .checksum = sum_of(right ? "hello" : "hallo")});
    sender.endpoint.stop();
    const std::string expected = right ? "ok" : "the checksums differ";
    EXPECT_THAT(last.says(), HasSubstr(expected));
    EXPECT_THAT(middle.says(), HasSubstr(expected));
    EXPECT_THAT(verdict, HasSubstr(right ? "fine" : expected));
  }
}

TEST(PipeReceiver, ComparesTheNumberOfBytes) {
  RunningReceiver receiver;
  ForgedSender sender(receiver.port, Terms{.checksum = false}.encode());
  sender.open();
  EXPECT_THAT(sender.send("hello", {.bytes = 6}), HasSubstr("5 of 6 bytes have arrived"));
  EXPECT_THAT(receiver.says(), HasSubstr("5 of 6 bytes have arrived"));
}

TEST(PipeReceiver, RequiresTheAnnouncedChecksum) {
  RunningReceiver receiver;
  ForgedSender sender(receiver.port, Terms{}.encode());
  sender.open();
  EXPECT_THAT(sender.send("hello", {.bytes = 5}), HasSubstr("the checksums differ"));
  EXPECT_FALSE(receiver.outcome.get().ok());
}

TEST(PipeReceiver, RefusesOtherProgramsAndContinuesToWait) {
  RunningReceiver receiver;
  auto version = Terms{}.encode();
  version[4] = std::byte{9};
  Terms large;
  large.block_bytes = 1U << 31;
  for (const auto& [hello, why] : std::vector<std::pair<std::vector<std::byte>, const char*>>{
           {{}, "the sender is not rdma_send"},
           {version, "uses version 9 of the protocol, this program version 1"},
           {large.encode(), "the sender asks for a block of 2G bytes: possible are 4K to 64M"}}) {
    ForgedSender unknown(receiver.port, hello);
    const auto connected = unknown.connect();
    EXPECT_EQ(connected.code(), Errc::kPeerRefused);
    EXPECT_THAT(connected.status().message(), HasSubstr(why));
  }
  ForgedSender sender(receiver.port, Terms{.checksum = false}.encode());
  sender.open();
  EXPECT_EQ(sender.send("x", {.bytes = 1}), "fine");
  sender.endpoint.stop();
  EXPECT_EQ(receiver.says(), "ok");
}

TEST(PipeReceiver, ReportsThatTheSenderLeftEarly) {
  {
    RunningReceiver receiver;
    ForgedSender sender(receiver.port, Terms{}.encode());
    sender.open();
    sender.stream = {};
    EXPECT_THAT(receiver.says(), HasSubstr("the stream was closed before its end"));
  }
  RunningReceiver receiver;
  ForgedSender sender(receiver.port, Terms{.checksum = false}.encode());
  sender.open();
  auto memory = RDMABuffer::allocate(sender.device(), {});
  ASSERT_TRUE(memory.has_value());
  const auto keep = std::make_shared<RDMABuffer>(std::move(*memory));
  EXPECT_TRUE(sender.stream.write_from(keep->at(0).first(1), keep, soon()).ok());
  EXPECT_TRUE(sender.stream.flush(soon()).ok());
  sender.endpoint.stop();
  EXPECT_FALSE(receiver.outcome.get().ok());
}

/// Connects as soon as the receiver has noticed that the previous sender has disconnected.
void connect_in_turn(std::optional<ForgedSender>& sender, std::uint16_t port) {
  for (bool there = false; !there;) {
    sender.emplace(port, Terms{.checksum = false}.encode());
    auto connected = sender->connect();
    there = connected.has_value();
    if (there) {
      sender->endpoint = std::move(*connected);
    } else {
      ASSERT_EQ(connected.code(), Errc::kPeerRefused) << connected.error().message();
    }
  }
}

TEST(PipeReceiver, WaitsForTheNextSenderIfOneLeavesBeforeItSends) {
  RunningReceiver receiver;
  std::optional<ForgedSender> sender;
  connect_in_turn(sender, receiver.port);  // disconnects before a stream is open
  connect_in_turn(sender, receiver.port);
  sender->open_stream(sender->endpoint);
  sender->endpoint.stop();
  connect_in_turn(sender, receiver.port);
  sender->open_stream(sender->endpoint);
  EXPECT_EQ(sender->send("x", {.bytes = 1}), "fine");
  sender->endpoint.stop();
  EXPECT_EQ(receiver.says(), "ok");
}

TEST(PipeReceiver, SendersThatLeaveAtOnceDoNotFloodItsOutput) {
  constexpr std::size_t kManySenders = 40;
  testing::internal::CaptureStderr();
  {
    RunningReceiver receiver({}, std::chrono::seconds(20), std::chrono::hours(1), std::chrono::seconds(20), true);
    std::optional<ForgedSender> sender;
    for (std::size_t i = 0; i < kManySenders; ++i) connect_in_turn(sender, receiver.port);
    connect_in_turn(sender, receiver.port);
    sender->open_stream(sender->endpoint);
    EXPECT_EQ(sender->send("x", {.bytes = 1}), "fine");
    sender->endpoint.stop();
    EXPECT_EQ(receiver.says(), "ok");
  }
  const std::string said = testing::internal::GetCapturedStderr();
  const auto lines_with = [&](std::string_view part) {
    std::size_t lines = 0;
    std::istringstream all(said);
    for (std::string line; std::getline(all, line);) lines += line.find(part) != std::string::npos ? 1 : 0;
    return lines;
  };
  EXPECT_GE(lines_with("had sent no data"), 1U) << said;
  EXPECT_LE(lines_with("had sent no data"), kManySenders / 4) << said;
  EXPECT_GE(lines_with("the sender is"), 2U) << "the first one, and the one that sends: " << said;
  EXPECT_LE(lines_with("the sender is"), kManySenders / 4) << said;
  EXPECT_THAT(said, HasSubstr(" from 127.0.0.1\n")) << "those that were left out";
}

/// After the earlier senders of a test have disconnected: a new sender is served, and its data arrives.
void expect_the_next_is_served(RunningReceiver& receiver, std::optional<ForgedSender>& sender) {
  connect_in_turn(sender, receiver.port);
  sender->open_stream(sender->endpoint);
  EXPECT_EQ(sender->send("x", {.bytes = 1}), "fine");
  sender->endpoint.stop();
  EXPECT_EQ(receiver.says(), "ok");
}

/// The next receivers of a chain are not affected by senders that send nothing.
TEST(PipeReceiver, ForwardsTheNextSendersBytesIfOneLeavesBefore) {
  RunningReceiver last;
  RunningReceiver middle({{"127.0.0.1", last.port}});
  std::optional<ForgedSender> sender;
  connect_in_turn(sender, middle.port);  // disconnects before a stream is open
  connect_in_turn(sender, middle.port);
  sender->open_stream(sender->endpoint);
  sender->endpoint.stop();
  expect_the_next_is_served(middle, sender);
  EXPECT_EQ(last.says(), "ok");
}

TEST(PipeReceiver, WaitsForTheNextSenderIfOneSendsNoStream) {
  RunningReceiver last;
  RunningReceiver middle({{"127.0.0.1", last.port}});
  std::optional<ForgedSender> sender;
  for (const std::size_t bytes : {std::size_t{64}, std::size_t{1} << 20}) {
    connect_in_turn(sender, middle.port);
    const auto garbage = RDMABuffer::allocate(sender->device(), {.block_bytes = bytes}).value();
    std::memset(garbage.data(), 0xa5, bytes);
    EXPECT_TRUE(sender->endpoint.channel(kChannel).post_send(garbage.at(0), {.id = 1}));
    (void)sender->endpoint.sync_with_peer(std::string("rdmacomm.stream.") + kChannel, soon());
    while (sender->endpoint.receive_message(soon())) {  // until the receiver ends the connection
    }
  }
  expect_the_next_is_served(middle, sender);
  EXPECT_EQ(last.says(), "ok");
}

TEST(PipeReceiver, WaitsForTheNextSenderIfOneOpensNoStream) {
  RunningReceiver receiver({}, std::chrono::seconds(2));
  std::optional<ForgedSender> sender;
  connect_in_turn(sender, receiver.port);
  EXPECT_FALSE(sender->endpoint.receive_message(soon()));
  expect_the_next_is_served(receiver, sender);
}

TEST(PipeReceiver, ASenderThatHasSentNothingIsReplacedByAWaitingOne) {
  RunningReceiver receiver({}, std::chrono::seconds(20), std::chrono::milliseconds(1));
  ForgedSender resting(receiver.port, Terms{.checksum = false}.encode());
  resting.open();
  std::optional<ForgedSender> sender;
  expect_the_next_is_served(receiver, sender);
  EXPECT_FALSE(resting.endpoint.receive_message(soon()));
}

TEST(PipeReceiver, AReplacedSenderLearnsThatItMayRetry) {
  RunningReceiver receiver({}, std::chrono::seconds(20), std::chrono::milliseconds(1));
  ForgedSender resting(receiver.port, Terms{.checksum = false}.encode());
  resting.open();
  std::optional<ForgedSender> sender;
  expect_the_next_is_served(receiver, sender);
  EXPECT_EQ(resting.endpoint.receive_message(soon()).code(), Errc::kServerBusy);
}

TEST(PipeReceiver, ASilentSenderDoesNotBlockItBeyondTheTimeout) {
  enum class Does { kNothing, kOpens, kEnds };
  for (const Does does : {Does::kNothing, Does::kOpens, Does::kEnds}) {
    SCOPED_TRACE(static_cast<int>(does));
    RunningReceiver receiver({}, std::chrono::hours(1), std::chrono::hours(1), std::chrono::milliseconds(500));
    ForgedSender sender(receiver.port, Terms{.checksum = false}.encode());
    auto connected = sender.connect();
    if (does != Does::kNothing && connected) {
      auto opened = RDMAStream::open(*connected, (*connected).channel(kChannel), sender_stream(Terms{}, 4), soon());
      if (opened) sender.stream = std::move(*opened);
      if (opened && does == Does::kEnds) (void)sender.stream.finish(soon());
    }
    EXPECT_EQ(receiver.outcome.wait_for(std::chrono::seconds(20)), std::future_status::ready);
    sender.stop();
    EXPECT_THAT(receiver.says(), HasSubstr("within --timeout=0.5 s"));
  }
}

/// Stops its handshake after the server's answer, and never reports that it is ready.
struct StalledSender : ForgedSender {
  using ForgedSender::ForgedSender;
  ~StalledSender() override { stop(); }
  Status post_connecting(const EndPoint&) override {
    answered.set_value();
    go_on.get_future().wait();
    return {};
  }
  std::promise<void> answered;
  std::promise<void> go_on;
};

TEST(PipeReceiver, ASenderInAnUnfinishedHandshakeIsReplacedByAWaitingOne) {
  RunningReceiver receiver({}, std::chrono::seconds(20), std::chrono::milliseconds(1));
  StalledSender stalled(receiver.port, Terms{}.encode());
  auto connecting = std::async(std::launch::async, [&] { return stalled.connect().has_value(); });
  stalled.answered.get_future().wait();
  std::optional<ForgedSender> sender;
  expect_the_next_is_served(receiver, sender);
  stalled.go_on.set_value();
  (void)connecting.get();  // the receiver's half of the barrier may have arrived before
}

TEST(PipeReceiver, ASenderThatHasSentAByteMayBeIdle) {
  RunningReceiver receiver({}, std::chrono::seconds(20), std::chrono::milliseconds(0));
  ForgedSender sender(receiver.port, Terms{.checksum = false}.encode());
  sender.open();
  EXPECT_EQ(sender.send("x", {.bytes = 1}), "fine");
  ForgedSender another(receiver.port, Terms{}.encode());
  EXPECT_EQ(another.connect().code(), Errc::kPeerRefused);
  sender.endpoint.stop();
  EXPECT_EQ(receiver.says(), "ok");
}

/// A receiver that does what the test specifies.
struct ForgedReceiver : ActingSession<ServerSession> {
  ForgedReceiver() : ActingSession(SessionOptions{.device = {.name = "soft0"}, .address = {"127.0.0.1", 0}}) {}
  ~ForgedReceiver() override { stop(); }
  Status lazy_config_hca(HcaConfig& hca, const PeerInfo&) override {
    if (before_connection) before_connection();
    hca.channels = {pipe_channel(receiver_stream(Terms{}), {})};
    return {};
  }
  enum class When { kConnected, kOpen };
  /// Refuses a sender because another one waits.
  void send_away(When when) {
    auto endpoint = accept(soon());
    ASSERT_TRUE(endpoint.has_value());
    RDMAStream stream;
    if (when == When::kOpen) {
      auto opened = RDMAStream::open(*endpoint, (*endpoint).channel(kChannel), receiver_stream(Terms{}), soon());
      ASSERT_TRUE(opened.has_value()) << opened.error().message();
      stream = std::move(*opened);
    }
    (*endpoint).abort(make_error(Errc::kServerBusy, "another sender waits"));
    (*endpoint).stop();
  }
  /// Receives all bytes of one sender, and answers.
  void serve(std::vector<std::byte> answer) {
    ASSERT_NO_FATAL_FAILURE(open());
    serve_opened(std::move(answer));
  }
  void open() {
    auto connected = accept(soon());
    ASSERT_TRUE(connected.has_value());
    endpoint = std::move(*connected);
    auto opened = RDMAStream::open(endpoint, endpoint.channel(kChannel), receiver_stream(Terms{}), soon());
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    stream = std::move(*opened);
  }
  void serve_opened(std::vector<std::byte> answer) {
    for (bool more = true; more;) {
      const auto block = stream.next(soon());
      ASSERT_TRUE(block.has_value()) << block.error().message();
      more = static_cast<bool>(*block);
      if (more) blocks.push_back(block->size());
    }
    ASSERT_TRUE(endpoint.receive_message(soon()).has_value());
    EXPECT_TRUE(endpoint.send_message(answer, soon()).ok());
    (void)endpoint.receive_message(soon());
  }

  std::function<void()> before_connection = {};  ///< called before each connection
  EndPoint endpoint = {};
  RDMAStream stream = {};
  std::vector<std::size_t> blocks = {};  ///< their sizes
};

// Until its first byte has arrived, a sender can lose its place. A block of half a MiB takes seconds on a slow network.
TEST(PipeSender, SendsASmallBlockFirst) {
  ForgedReceiver receiver;
  EXPECT_TRUE(receiver.start().ok());
  auto serving = std::async(std::launch::async, [&] { receiver.serve(Verdict{}.encode()); });
  const int zeros = ::memfd_create("input", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(zeros, 1 << 20), 0);
  const HostPort address{"127.0.0.1", receiver.port()};
  EXPECT_TRUE(run_sender({.flags = flags_for(address), .receivers = {address}, .input_fd = zeros}).ok());
  ::close(zeros);
  serving.get();
  EXPECT_THAT(receiver.blocks, testing::ElementsAre(4096, 512 << 10, (512 << 10) - 4096));
}

TEST(PipeSender, RetriesIfItsReceiverServesAnotherSenderFirst) {
  ForgedReceiver receiver;
  EXPECT_TRUE(receiver.start().ok());
  auto serving = std::async(std::launch::async, [&] {
    receiver.send_away(ForgedReceiver::When::kConnected);
    receiver.serve(Verdict{}.encode());
  });
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const HostPort address{"127.0.0.1", receiver.port()};
  const Status sent = run_sender({.flags = flags_for(address), .receivers = {address}, .input_fd = null});
  EXPECT_TRUE(sent.ok()) << sent.message();
  ::close(null);
  serving.get();
}

/// A sender whose input is idle after it has connected. direct: sends like rdma_recv --forward.
void expect_a_quiet_sender_comes_back(bool direct, std::size_t bytes) {
  SCOPED_TRACE(std::to_string(bytes) + (direct ? " bytes, direct" : " bytes"));
  ForgedReceiver receiver;
  EXPECT_TRUE(receiver.start().ok());
  const HostPort address{"127.0.0.1", receiver.port()};
  std::promise<std::string> said;
  Outlets::Callbacks callbacks{.over = [](const Status& why) { ADD_FAILURE() << why.message(); },
                               .say = [&](const std::string& line) { said.set_value(line); }};
  if (direct) callbacks.may_go_on = [] { return Status(); };
  std::optional<Outlets> sender;
  Outlets& outlets = sender.emplace(OutletsOptions{.connection = flags_for(address).connection, .terms = Terms{}},
                                    RDMADevice(), callbacks);
  auto serving = std::async(std::launch::async, [&] {
    receiver.send_away(ForgedReceiver::When::kOpen);
    receiver.serve(Verdict{}.encode());
  });
  ASSERT_TRUE(outlets.connect({address}).ok());
  auto line = said.get_future();
  const Deadline deadline = soon();
  while (line.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
    ASSERT_FALSE(deadline.passed());
    outlets.look();
  }
  EXPECT_THAT(line.get(), HasSubstr("serves another sender first"));
  auto store = BlockStore::create(outlets.device(), 4096, 2);
  ASSERT_TRUE(store.has_value());
  if (bytes > 0) {
    const auto block = (*store)->take();
    outlets.push(block->first(static_cast<std::uint32_t>(bytes)), block);
  }
  const Status finished = outlets.finish({.bytes = bytes});
  EXPECT_TRUE(finished.ok()) << finished.message();
  sender.reset();  // the serving thread waits for that
  serving.get();
  EXPECT_EQ(std::accumulate(receiver.blocks.begin(), receiver.blocks.end(), std::size_t{0}), bytes);
}

TEST(PipeSender, SendsItsFirstBlockAgainIfAnotherSenderWasServedFirst) {
  for (const bool direct : {false, true}) {
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{100}}) expect_a_quiet_sender_comes_back(direct, bytes);
  }
}

/// Two receivers. The second one has refused the sender because another one waits.
struct TwoReceivers {
  TwoReceivers() {
    EXPECT_TRUE(first.start().ok());
    EXPECT_TRUE(second.start().ok());
    auto away = std::async(std::launch::async, [this] { second.send_away(ForgedReceiver::When::kOpen); });
    auto opening = std::async(std::launch::async, [this] { first.open(); });
    EXPECT_TRUE(outlets->connect({address_of(first), address_of(second)}).ok());
    away.get();
    opening.get();
    EXPECT_THAT(said.get_future().get(), HasSubstr("serves another sender first"));
  }
  static HostPort address_of(const ForgedReceiver& receiver) { return {"127.0.0.1", receiver.port()}; }

  ForgedReceiver first;
  ForgedReceiver second;
  std::promise<std::string> said;
  std::promise<Status> over;
  std::optional<Outlets> outlets{std::in_place,
                                 OutletsOptions{.connection = flags_for({"127.0.0.1", 0}).connection, .terms = Terms{}},
                                 RDMADevice(),
                                 Outlets::Callbacks{.over = [this](const Status& why) { over.set_value(why); },
                                                    .say = [this](const std::string& line) { said.set_value(line); }}};
};

// A sender whose receiver has no data yet may be refused because another sender waits, and connecting may take long.
TEST(PipeSender, SendsToConnectedReceiversBeforeItReconnectsToOthers) {
  TwoReceivers both;
  std::promise<void> first_has_it;
  both.second.before_connection = [begun = first_has_it.get_future().share()] { begun.wait(); };
  auto store = BlockStore::create(both.outlets->device(), 4096, 2);
  ASSERT_TRUE(store.has_value());
  auto first = std::async(std::launch::async, [&] {
    if (const auto got = both.first.stream.next(soon()); got) {
      both.first.blocks.push_back(got->size());
    } else {
      ADD_FAILURE() << got.error().message();
    }
    first_has_it.set_value();
    both.first.serve_opened(Verdict{}.encode());
  });
  auto second = std::async(std::launch::async, [&] { both.second.serve(Verdict{}.encode()); });
  const auto block = (*store)->take();
  both.outlets->push(block->first(100), block);
  const Status finished = both.outlets->finish({.bytes = 100});
  EXPECT_TRUE(finished.ok()) << finished.message();
  both.outlets.reset();  // receivers wait for that
  first.get();
  second.get();
  EXPECT_THAT(both.first.blocks, testing::ElementsAre(100));
  EXPECT_THAT(both.second.blocks, testing::ElementsAre(100));
}

TEST(PipeSender, SendsNothingToAReconnectedReceiverIfAnotherOneWasLost) {
  TwoReceivers both;
  both.second.before_connection = [lost = both.over.get_future().share()] { lost.wait(); };
  auto store = BlockStore::create(both.outlets->device(), 4096, 2);
  ASSERT_TRUE(store.has_value());
  auto first = std::async(std::launch::async, [&] {
    EXPECT_TRUE(both.first.stream.next(soon()).has_value());
    both.first.endpoint.stop();
  });
  auto second = std::async(std::launch::async, [&] {
    both.second.open();
    const auto block = both.second.stream.next(soon());
    EXPECT_EQ(block.code(), Errc::kAborted);
  });
  const auto block = (*store)->take();
  both.outlets->push(block->first(100), block);
  EXPECT_FALSE(both.outlets->finish({.bytes = 100}).ok());
  first.get();
  second.get();
}

std::string sender_says(std::vector<std::byte> answer) {
  ForgedReceiver receiver;
  EXPECT_TRUE(receiver.start().ok());
  auto serving = std::async(std::launch::async, [&] { receiver.serve(std::move(answer)); });
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const HostPort address{"127.0.0.1", receiver.port()};
  const Status sent = run_sender({.flags = flags_for(address), .receivers = {address}, .input_fd = null});
  ::close(null);
  serving.get();
  return sent.message();
}

TEST(PipeSender, ReportsTheResultOfTheReceiver) {
  EXPECT_EQ(sender_says(Verdict{}.encode()), "ok");
  EXPECT_THAT(sender_says(Verdict{.failure = "the dog ate it"}.encode()), HasSubstr("reports: the dog ate it"));
  EXPECT_THAT(sender_says({std::byte{1}}), HasSubstr("the receiver is not rdma_recv"));
}

}  // namespace
}  // namespace rdmacomm::pipes
