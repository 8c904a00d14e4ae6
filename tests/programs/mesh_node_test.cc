// Nodes and processes that behave differently from a node.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/unique_fd.h"
#include "connector/handshake.h"
#include "endpoint/endpoint_core.h"
#include "mesh_comm_service/connections.h"
#include "mesh_comm_service/node.h"
#include "mesh_comm_service/process_figures.h"
#include "rdmacomm/session.h"
#include "support/acting_session.h"
#include "support/pattern.h"

namespace rdmacomm::mesh {
namespace {

using testing::HasSubstr;

constexpr std::chrono::seconds kLong{60};

SessionOptions session_options() {
  SessionOptions options{.device = {.name = "soft0"}};
  options.tcp.connect_timeout = kLong;
  return options;
}

Introduction introduction_of(std::uint32_t rank, std::uint32_t nodes, const Terms& terms) {
  return {.rank = rank, .nodes = nodes, .incarnation = 1000 + rank, .terms = terms};
}

/// A client that claims to be a node.
class Impostor final : public ActingSession<ClientSession> {
 public:
  Impostor(const Introduction& introduction, std::uint16_t port, std::string channel = kDataChannel)
      : ActingSession([&] {
          SessionOptions options = session_options();
          options.address = {"127.0.0.1", port};
          return options;
        }()),
        introduction_(introduction),
        channel_(std::move(channel)) {}

  ~Impostor() override { stop(); }
  Status lazy_config_hca(HcaConfig& hca, const PeerInfo&) override {
    hca.channels = {{.name = channel_, .adapter = {.send_depth = 32, .recv_depth = 32}}};
    hca.private_data = introduction_.encode();
    return {};
  }
  Status post_connecting(const EndPoint& endpoint) override {
    if (refuses) return make_error(Errc::kWrongState, "it leaves before the barrier");
    note_ = *RDMABuffer::allocate(endpoint.device(), {.block_bytes = Link::kNoteBytes, .block_count = 1});
    return endpoint.channel().post_recv(note_.at(0), {.id = 1});
  }

  /// The bytes that a client sends in its handshake, up to the barrier.
  [[nodiscard]] std::vector<std::byte> opening(const EndPoint& endpoint) const {
    EndPointDescription description = endpoint.core()->description();
    description.private_data = introduction_.encode();
    auto bytes = *frame_message(MessageType::kHello, Hello::of_this_process().encode());
    const auto offer = *frame_message(MessageType::kOffer, description.encode());
    bytes.insert(bytes.end(), offer.begin(), offer.end());
    return bytes;
  }
  /// Sends a message that a node would not send. Returns when the node has received it.
  void send_wrong_message(const EndPoint& endpoint) {
    const auto size = static_cast<std::uint32_t>(introduction_.terms.size);
    const auto buffer = *RDMABuffer::allocate(endpoint.device(), {.block_bytes = size, .block_count = 1});
    const BufferSlice message = buffer.at(0).first(size);
    if (introduction_.terms.op == Operation::kSend) {
      EXPECT_TRUE(endpoint.channel().post_send(message, {.id = 2}));
    } else {  // correct bytes with a wrong number
      programs::fill_pattern(message.bytes(), message_seed(static_cast<int>(introduction_.rank), 0, 0));
      EXPECT_TRUE(
          endpoint.channel().post_write(message, *endpoint.remote_region(kTrafficRegion), {.id = 2, .immediate = 77}));
    }
    for (bool told = false; !told;) {  // waits for its arrival
      const auto completion = endpoint.next(Deadline::after(kLong));
      ASSERT_TRUE(completion);
      ASSERT_TRUE(completion->ok()) << completion->status().message();
      told = completion->operation == Operation::kRecv;
    }
  }
  /// Whether a READ from the node succeeds. The node may end the connection before that is known.
  static bool reads(const EndPoint& endpoint, RemoteRegion region) {
    const auto mine = *RDMABuffer::allocate(endpoint.device(), {.block_bytes = 64, .block_count = 1});
    region.length = 64;
    EXPECT_TRUE(endpoint.channel().post_read(mine.at(0), region, {.id = 3}));
    for (;;) {
      const auto completion = endpoint.next(Deadline::after(kLong));
      EXPECT_NE(completion.code(), Errc::kTimeout);
      if (!completion) return false;
      if (completion->operation == Operation::kRead) return completion->ok();
    }
  }
  /// Makes the node count it as lost. Returns when it has.
  static void be_lost(const EndPoint& endpoint) {
    const std::array<std::byte, 3> no_mail{};
    ASSERT_TRUE(endpoint.send_message(no_mail, Deadline::after(kLong)).ok());
    Status ended;
    while (ended.ok()) ended = endpoint.next(Deadline::after(kLong)).status();
    EXPECT_NE(ended.code(), Errc::kTimeout);
  }

  bool refuses = false;  // in post_connecting()

 private:
  const Introduction introduction_;
  const std::string channel_;
  RDMABuffer note_;
};

/// The addresses of the nodes of a test: each node waits for all of them.
class Ports {
 public:
  explicit Ports(std::size_t nodes) : ports_(nodes) {}
  void set(std::size_t rank, std::uint16_t port) {
    const std::lock_guard lock(mutex_);
    ports_[rank] = port;
    changed_.notify_all();
  }
  std::uint16_t wait_for(std::size_t rank) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ports_[rank] != 0; });
    return ports_[rank];
  }
  Cluster wait_for_all() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return std::ranges::find(ports_, 0) == ports_.end(); });
    Cluster cluster;
    for (const std::uint16_t port : ports_) cluster.push_back({"127.0.0.1", port});
    return cluster;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::uint16_t> ports_;
};

/// A listener at a node's address in the list, which answers with the node's introduction.
class Address {
 public:
  explicit Address(const Introduction& introduction)
      : events_(*NodeEvents::create()),
        connections_({.self = introduction,
                      .session = session_options(),
                      .modes = {.polling = PollingMode::kEpoll, .threads = ThreadMode::kThreadPerCompletionQueue},
                      .events = events_.get(),
                      .clock = &clock_,
                      .moment = [](Introduction&) {}}) {
    const Status listening = connections_.listen({"127.0.0.1", 0});
    EXPECT_TRUE(listening.ok()) << listening.message();
  }
  [[nodiscard]] std::uint16_t port() const { return connections_.port(); }

 private:
  const programs::TickClock clock_;
  const std::unique_ptr<NodeEvents> events_;
  Connections connections_;
};

/// A node on a thread of its own.
class RunningNode {
 public:
  RunningNode(int rank, int nodes, const Terms& terms, Ports& ports, std::uint16_t listen_port = 0)
      : node_({.rank = rank,
               .nodes = nodes,
               .terms = terms,
               .listen = {"127.0.0.1", listen_port},
               .find_cluster =
                   [rank, &ports](std::uint16_t port) {
                     ports.set(static_cast<std::size_t>(rank), port);
                     return Result<Cluster>(ports.wait_for_all());
                   },
               .connection = {.session = session_options()},
               .modes = {.polling = PollingMode::kEpoll, .threads = ThreadMode::kThreadPerCompletionQueue},
               .on_failure = OnFailure::kContinue,
               .connect_timeout = kLong,
               .on_result = [](const NodeResult&) {},
               .on_results =
                   [this](const std::vector<NodeResult>& all) {
                     results_ = all;
                     return Status();
                   }}),
        thread_([this] { outcome_ = node_.run(); }) {}
  ~RunningNode() {
    if (thread_.joinable()) thread_.join();
  }

  Status outcome() {
    thread_.join();
    return outcome_;
  }
  [[nodiscard]] const std::vector<NodeResult>& results() const { return results_; }

 private:
  Status outcome_;
  std::vector<NodeResult> results_;
  Node node_;
  std::thread thread_;
};

UniqueFd connect_from(const char* source, std::uint16_t port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  ::inet_pton(AF_INET, source, &address.sin_addr);
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

/// Reads until a message of type `wanted` arrives. Returns false if the connection has ended.
bool read_until(int fd, MessageType wanted) {
  MessageAssembler assembler;
  for (;;) {
    const auto room = assembler.room();
    const ssize_t count = ::recv(fd, room.data(), room.size(), 0);
    if (count <= 0 || !assembler.filled(static_cast<std::size_t>(count)).ok()) return false;
    const auto message = assembler.take();
    if (message && message->type == wanted) return true;
  }
}

void send_bytes(int fd, const std::vector<std::byte>& bytes) {
  (void)!::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

/// Replays the handshake of a node from another address until it is established. Returns when the peer's heartbeats
/// arrive.
UniqueFd replay_from(const char* source, std::uint16_t port, const std::vector<std::byte>& opening) {
  for (;;) {
    UniqueFd fd = connect_from(source, port);
    send_bytes(fd.get(), opening);
    if (testing::Test::HasFailure()) return fd;                  // no process listens
    if (!read_until(fd.get(), MessageType::kBarrier)) continue;  // the previous one has not quite ended
    send_bytes(fd.get(), *frame_message(MessageType::kBarrier, BarrierTag{"rdmacomm.established"}.encode()));
    if (read_until(fd.get(), MessageType::kHeartbeat)) return fd;
  }
}

/// The first messages of a node, up to the barrier.
std::vector<std::byte> opening_of(const Introduction& introduction) {
  Introduction other = introduction;
  other.rank = 0;
  const Address zero(other);
  const auto impostor = std::make_unique<Impostor>(introduction, zero.port());
  const auto endpoint = impostor->connect();
  EXPECT_TRUE(endpoint.has_value()) << endpoint.status().message();
  return impostor->opening(*endpoint);
}

/// A port without a listener. While this object lives, the system does not assign the port to sockets that ask for any
/// port. A listener with SO_REUSEADDR, as in this library, can use it.
class HeldPort {
 public:
  HeldPort() {
    const int on = 1;
    socklen_t length = sizeof(address_);
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::setsockopt(fd_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
    EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address_), length), 0);
    EXPECT_EQ(::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address_), &length), 0);
  }
  std::uint16_t number() const { return ntohs(address_.sin_port); }

 private:
  const UniqueFd fd_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in address_{};
};

/// A client that completes the handshake of node 1 before node 1 itself does: from an address of the mesh, or from
/// another one.
class EarlierClient : public testing::TestWithParam<const char*> {
 protected:
  static constexpr Terms kTerms{.op = Operation::kSend, .size = 64, .total = 64, .depth = 2};
  EarlierClient() : opening_(opening_of(introduction_of(1, 2, kTerms))) { ports_.set(1, port_of_one_.number()); }

  /// Starts node 1 and expects that both nodes succeed.
  void expect_run() {
    RunningNode one(1, 2, kTerms, ports_, ports_.wait_for(1));
    for (RunningNode* const each : {&zero_, &one}) {
      const Status outcome = each->outcome();
      EXPECT_TRUE(outcome.ok()) << outcome.message();
    }
    EXPECT_EQ(zero_.results().size(), 2U);
  }

  const std::vector<std::byte> opening_;
  const HeldPort port_of_one_;
  Ports ports_{2};
  RunningNode zero_{0, 2, kTerms, ports_};
};
INSTANTIATE_TEST_SUITE_P(Sources, EarlierClient, testing::Values("127.0.0.1", "127.0.0.2"), [](const auto& source) {
  return std::string(source.param) == "127.0.0.1" ? "OfTheMesh" : "OfAnotherHost";
});

TEST_P(EarlierClient, AClientThatStaysDoesNotBlockTheNode) {
  const UniqueFd stays = replay_from(GetParam(), ports_.wait_for(0), opening_);
  expect_run();
}

TEST_P(EarlierClient, AClientThatLeavesIsNotTakenForTheNode) {
  for (int i = 0; i < 2; ++i) (void)replay_from(GetParam(), ports_.wait_for(0), opening_);
  expect_run();
}

TEST_P(EarlierClient, MessagesOfSuchAClientAreIgnored) {
  const UniqueFd stays = replay_from(GetParam(), ports_.wait_for(0), opening_);
  Mail stop = mail_of(MailKind::kStop);
  stop.text = "the others have lost node 0";
  send_bytes(stays.get(), *frame_message(MessageType::kUser, stop.encode()));
  EXPECT_TRUE(read_until(stays.get(), MessageType::kHeartbeat));
  expect_run();
}

class WrongMessages : public testing::TestWithParam<Operation> {};
INSTANTIATE_TEST_SUITE_P(Operations, WrongMessages, testing::Values(Operation::kSend, Operation::kWriteImm),
                         [](const auto& op) { return std::string(op_name(op.param)); });

// The sender no longer exists, so only the receiver can report the error.
TEST_P(WrongMessages, OfANodeThatIsLostAreNotForgotten) {
  const Terms terms{.op = GetParam(), .size = 4096, .total = 4096, .depth = 2, .verify = true};
  Ports ports(3);
  RunningNode zero(0, 3, terms, ports);
  RunningNode two(2, 3, terms, ports);
  const Address one(introduction_of(1, 3, terms));
  ports.set(1, one.port());
  const Cluster cluster = ports.wait_for_all();
  for (const std::size_t rank : {0U, 2U}) {
    const auto impostor = std::make_unique<Impostor>(introduction_of(1, 3, terms), cluster[rank].port);
    const auto endpoint = impostor->connect();
    ASSERT_TRUE(endpoint.has_value()) << endpoint.status().message();
    if (rank == 0) impostor->send_wrong_message(*endpoint);
    Impostor::be_lost(*endpoint);
  }
  const Status outcome = zero.outcome();
  EXPECT_TRUE(two.outcome().ok());
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(outcome.error().context, HasSubstr("1 of 1 messages from node 1 to node 0 differ from the sent ones"));
  ASSERT_EQ(zero.results().size(), 2U);
  EXPECT_EQ(zero.results()[0].peers[0].rank, 1U);
  EXPECT_TRUE(zero.results()[0].peers[0].lost);
  EXPECT_EQ(zero.results()[0].peers[0].corrupt, 1U);
}

TEST(PastLives, AddUp) {
  OutboundFigures first{.messages = 3, .bytes = 300, .corrupt = 1, .elapsed_ns = 10};
  first.latency_ns.add(1000);
  Peer peer{.rank = 2};
  peer.past.emplace();
  peer.past->add(first, {.messages = 2, .bytes = 200}, {.corrupt = 4});
  peer.past->add({.messages = 5, .bytes = 500, .elapsed_ns = 20}, {.messages = 5, .bytes = 500, .corrupt = 8}, {});
  const PeerResult figures = figures_of(peer);
  EXPECT_EQ(figures.rank, 2U);
  EXPECT_EQ(figures.messages, 8U);
  EXPECT_EQ(figures.bytes, 800U);
  EXPECT_EQ(figures.counted_messages, 7U);
  EXPECT_EQ(figures.counted_bytes, 700U);
  EXPECT_EQ(figures.corrupt, 13U);
  EXPECT_EQ(figures.elapsed_ns, 30U);
  EXPECT_EQ(figures.latency_us.count, 1U);
}

/// The connections of node 0 of two. The test plays the other node.
class NodeAdmission : public testing::Test {
 protected:
  void open(const Terms& terms, std::uint32_t nodes = 2) {
    terms_ = terms;
    events_ = *NodeEvents::create();
    connections_ = std::make_unique<Connections>(
        ConnectionParts{.self = introduction_of(0, nodes, terms),
                        .session = session_options(),
                        .modes = {.polling = PollingMode::kEpoll, .threads = ThreadMode::kThreadPerCompletionQueue},
                        .events = events_.get(),
                        .clock = &clock_,
                        .moment = [](Introduction&) {}});
    const Status listening = connections_->listen({"127.0.0.1", 0});
    ASSERT_TRUE(listening.ok()) << listening.message();
  }
  /// Waits for all of `kinds`, in any order.
  void wait_for(std::same_as<NodeEvent::Kind> auto... kinds) {
    std::vector<NodeEvent::Kind> awaited{kinds...};
    const Deadline soon = Deadline::after(kLong);
    while (!awaited.empty() && !soon.passed()) {
      for (const NodeEvent& each : events_->take()) {
        const auto found = std::ranges::find(awaited, each.kind);
        if (found != awaited.end()) awaited.erase(found);
      }
    }
    EXPECT_TRUE(awaited.empty());
  }
  void wait_for_end() {
    const Deadline soon = Deadline::after(kLong);
    while (connections_->links() > 0 && !soon.passed()) std::this_thread::yield();
    EXPECT_EQ(connections_->links(), 0U);
  }
  [[nodiscard]] Introduction node_1(std::uint64_t incarnation) const {
    Introduction introduction = introduction_of(1, 2, terms_);
    introduction.incarnation = incarnation;
    return introduction;
  }

  const programs::TickClock clock_;
  Terms terms_;
  std::unique_ptr<NodeEvents> events_;
  std::unique_ptr<Connections> connections_;
};

TEST_F(NodeAdmission, OneProcessOfEachNodeIsAccepted) {
  ASSERT_NO_FATAL_FAILURE(open({.op = Operation::kWrite, .size = 64, .total = 64, .depth = 2}));
  auto one = std::make_unique<Address>(node_1(1));
  connections_->connect(1, {"127.0.0.1", one->port()});
  const auto first = std::make_unique<Impostor>(node_1(1), connections_->port());
  const auto second = std::make_unique<Impostor>(node_1(2), connections_->port());
  const auto present = first->connect();
  ASSERT_TRUE(present.has_value()) << present.status().message();
  wait_for(NodeEvent::Kind::kArrived, NodeEvent::Kind::kConnected);  // node 0 may notice this later than node 1
  const auto refused = second->connect();
  EXPECT_EQ(refused.code(), Errc::kPeerRefused);
  EXPECT_THAT(refused.status().message(), HasSubstr("node 1 is already connected"));
  EXPECT_TRUE((*present).alive());
  first->stop();
  one.reset();
  wait_for(NodeEvent::Kind::kEnded, NodeEvent::Kind::kEnded);
  const auto successor = second->connect();
  EXPECT_TRUE(successor.has_value()) << successor.status().message();
}

TEST_F(NodeAdmission, ANodeIsAcceptedWhileOthersUseItsRankAndAreIdle) {
  ASSERT_NO_FATAL_FAILURE(open({.op = Operation::kWrite, .size = 64, .total = 64, .depth = 2}));
  const auto node = std::make_unique<Impostor>(node_1(1), connections_->port());
  std::vector<std::byte> opening;
  {
    const auto endpoint = node->connect();
    ASSERT_TRUE(endpoint.has_value()) << endpoint.status().message();
    wait_for(NodeEvent::Kind::kArrived);
    opening = node->opening(*endpoint);
    node->stop();
  }
  wait_for_end();
  std::vector<UniqueFd> resting;
  for (int i = 0; i < 8; ++i) {
    resting.push_back(connect_from("127.0.0.2", connections_->port()));
    ASSERT_EQ(::send(resting.back().get(), opening.data(), opening.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(opening.size()));
  }
  const auto again = std::make_unique<Impostor>(node_1(2), connections_->port());
  const auto endpoint = again->connect();
  EXPECT_TRUE(endpoint.has_value()) << endpoint.status().message();
}

TEST_F(NodeAdmission, ManyClientsWithOtherOptionsAreReportedOnce) {
  ASSERT_NO_FATAL_FAILURE(open({.op = Operation::kWrite, .size = 64, .total = 64, .depth = 2}));
  Terms other = terms_;
  other.size = 128;
  const std::vector<std::byte> opening = opening_of(introduction_of(1, 2, other));
  for (int i = 0; i < 20; ++i) {
    const UniqueFd fd = connect_from("127.0.0.2", connections_->port());
    send_bytes(fd.get(), opening);
    EXPECT_TRUE(read_until(fd.get(), MessageType::kReject));
  }
  std::size_t told = 0;
  const Deadline soon = Deadline::after(kLong);
  while (told == 0 && !soon.passed()) {
    for (const NodeEvent& each : events_->take()) told += each.kind == NodeEvent::Kind::kMisfit ? 1 : 0;
  }
  EXPECT_EQ(told, 1U);
}

TEST_F(NodeAdmission, NoClientIsAcceptedWhileTheNodeIsBehind) {
  constexpr std::size_t kMany = 200;
  ASSERT_NO_FATAL_FAILURE(open({.op = Operation::kWrite, .size = 64, .total = 64, .depth = 2}));
  const std::vector<std::byte> opening = opening_of(node_1(1));
  for (std::size_t i = 0; i < kMany; ++i) {
    const UniqueFd fd = connect_from("127.0.0.2", connections_->port());
    send_bytes(fd.get(), opening);
    if (!read_until(fd.get(), MessageType::kBarrier)) continue;
    send_bytes(fd.get(), *frame_message(MessageType::kBarrier, BarrierTag{"rdmacomm.established"}.encode()));
  }
  wait_for_end();
  EXPECT_LT(events_->take().size(), kMany / 2);
  const auto node = std::make_unique<Impostor>(node_1(2), connections_->port());
  const auto endpoint = node->connect();
  EXPECT_TRUE(endpoint.has_value()) << endpoint.status().message();
}

TEST_F(NodeAdmission, EachNodeReachesItsOwnMemoryAlone) {
  ASSERT_NO_FATAL_FAILURE(open({.op = Operation::kRead, .size = 64, .total = 64, .depth = 2}, 3));
  std::array<std::unique_ptr<Impostor>, 2> nodes;
  std::array<EndPoint, 2> ends;
  for (std::uint32_t i = 0; i < 2; ++i) {
    nodes[i] = std::make_unique<Impostor>(introduction_of(1 + i, 3, terms_), connections_->port());
    ends[i] = nodes[i]->connect().value();
  }
  const RemoteRegion victim = *ends[0].remote_region(kTrafficRegion);
  EXPECT_FALSE(Impostor::reads(ends[1], victim));
  EXPECT_TRUE(Impostor::reads(ends[0], victim));
}

TEST_F(NodeAdmission, ClientsThatAreNotAcceptedTakeNoMemory) {
  constexpr int kTries = 40;
  constexpr std::uint64_t kEach = std::uint64_t{8} << 20;  // filled, for READs
  ASSERT_NO_FATAL_FAILURE(open({.op = Operation::kRead, .size = kEach / 2, .total = kEach, .depth = 2}));
  const auto impostor = std::make_unique<Impostor>(node_1(1), connections_->port(), "other");
  EXPECT_EQ(impostor->connect().code(), Errc::kPeerRefused);
  const std::uint64_t before = process_figures().memory_bytes;
  for (int i = 0; i < kTries; ++i) EXPECT_EQ(impostor->connect().code(), Errc::kPeerRefused);
  EXPECT_LT(process_figures().memory_bytes, before + kTries * kEach / 4);
}

TEST_F(NodeAdmission, ClientsThatLeaveBeforeTheBarrierAreForgotten) {
  ASSERT_NO_FATAL_FAILURE(open({.op = Operation::kSend, .size = 64, .total = 64, .depth = 2}));
  for (int i = 0; i < 5; ++i) {
    const auto impostor = std::make_unique<Impostor>(node_1(1), connections_->port());
    impostor->refuses = true;
    EXPECT_EQ(impostor->connect().code(), Errc::kWrongState);
    wait_for_end();
  }
}

TEST(Connections, FreeTheLinkOfEachEndpointThatHasEnded) {
  const auto events = *NodeEvents::create();
  const programs::TickClock clock;
  const Terms terms{.op = Operation::kSend, .size = 1000, .total = 1000, .depth = 2};
  Connections connections({.self = introduction_of(0, 2, terms),
                           .session = session_options(),
                           .modes = {.polling = PollingMode::kEpoll, .threads = ThreadMode::kThreadPerCompletionQueue},
                           .events = events.get(),
                           .clock = &clock,
                           .moment = [](Introduction&) {}});
  ASSERT_TRUE(connections.listen({"127.0.0.1", 0}).ok());
  for (int life = 0; life < 3; ++life) {
    {
      Impostor impostor(introduction_of(1, 2, terms), connections.port());
      const auto connected = impostor.connect();
      ASSERT_TRUE(connected.has_value()) << connected.error().message();
      impostor.stop();
    }
    const Deadline soon = Deadline::after(kLong);
    for (bool ended = false; !ended && !soon.passed();) {
      for (const NodeEvent& each : events->take()) ended = ended || each.kind == NodeEvent::Kind::kEnded;
    }
    EXPECT_EQ(connections.links(), 0U);
  }
}

}  // namespace
}  // namespace rdmacomm::mesh
