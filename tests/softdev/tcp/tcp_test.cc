// Targets that are reached by TCP: the clients that may connect, the limits of unknown clients, and messages of all
// lengths.
#include <arpa/inet.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "base/unique_fd.h"
#include "softdev/common/device_limits.h"
#include "softdev/local/local_wire.h"
#include "softdev/queues/xrc_scene.h"
#include "softdev/tcp/manual_scene.h"
#include "softdev/tcp/tcp_protocol.h"
#include "softdev/tcp/tcp_raw_client.h"
#include "softdev/verbs/raw_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

struct TcpScene {
  WireVariable variable{"tcp"};
  Pair pair;
  Memory a_memory{pair.a_node};
  Memory b_memory{pair.b_node};

  [[nodiscard]] TcpGreeting greeting() const {
    TcpGreeting greeting = connection_greeting(Service::kReliable, connecting().number(), connected().number());
    greeting.path_mtu = 4096;
    greeting.token = 0x1234;  // unknown
    return greeting;
  }
  /// On one host the lower number connects to the higher one.
  [[nodiscard]] const Qp& connecting() const { return pair.a.number() < pair.b.number() ? pair.a : pair.b; }
  [[nodiscard]] const Qp& connected() const { return pair.a.number() < pair.b.number() ? pair.b : pair.a; }
  void expect_it_still_works() {
    ASSERT_EQ(pair.b.post_recv(b_memory.slice(0, 64), 1), 0);
    ASSERT_EQ(pair.a.post(send_request(2), a_memory.slice(0, 64)), 0);
    EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
    EXPECT_EQ(pair.b.next().status, IBV_WC_SUCCESS);
  }
};

TEST(TcpUnknownClients, AClientWithoutTheTokenIsNotThePeer) {
  TcpScene scene;
  UniqueFd unknown;
  EXPECT_EQ(welcome_once_asked(unknown, scene.greeting()), Welcome::kRefused);
  EXPECT_TRUE(is_closed(unknown));
  scene.expect_it_still_works();
}

TEST(TcpUnknownClients, AnotherQueuePairIsNotThePeer) {
  TcpScene scene;
  const UniqueFd unknown = connect_raw(scene.connected().number());
  TcpGreeting greeting = scene.greeting();
  ++greeting.initiator_qpn;
  say(unknown, greeting);
  EXPECT_EQ(welcome_of(unknown), Welcome::kNotYet);
  scene.expect_it_still_works();
}

TEST(TcpUnknownClients, AnotherVersionAndAnotherProtocolAreRefused) {
  TcpScene scene;
  for (const bool version : {true, false}) {
    const UniqueFd unknown = connect_raw(scene.connected().number());
    TcpGreeting greeting = scene.greeting();
    if (version) {
      ++greeting.version;
    } else {
      greeting.magic = 0x20544547;  // "GET "
    }
    say(unknown, greeting);
    EXPECT_EQ(welcome_of(unknown), Welcome::kRefused);
  }
  scene.expect_it_still_works();
}

TEST(TcpUnknownClients, AGreetingThatWasNotSentIsNotConfirmed) {
  TcpScene scene;
  const UniqueFd unknown = connect_raw(scene.connecting().number());
  TcpGreeting question = scene.greeting();
  question.kind = GreetingKind::kConfirm;
  say(unknown, question);
  EXPECT_EQ(welcome_of(unknown), Welcome::kRefused);
}

TEST(TcpUnknownClients, ANumberThatNoQueuePairHasIsRefused) {
  TcpScene scene;
  for (const std::uint32_t number : {0U, 1U << 24, UINT32_MAX}) {
    const UniqueFd unknown = connect_raw(scene.connected().number());
    TcpGreeting greeting = scene.greeting();
    greeting.initiator_qpn = number;
    say(unknown, greeting);
    EXPECT_EQ(welcome_of(unknown), Welcome::kRefused) << number;
  }
  scene.expect_it_still_works();
}

/// A client that connects while no descriptor is free is accepted once one is free again.
TEST(TcpUnknownClients, AClientWaitsWhileNoDescriptorIsFree) {
  TcpScene scene;
  // Connected in both directions, so that no connection in progress takes the last descriptor.
  scene.expect_it_still_works();
  ASSERT_EQ(scene.pair.a.post_recv(scene.a_memory.slice(0, 64), 3), 0);
  ASSERT_EQ(scene.pair.b.post(send_request(4), scene.b_memory.slice(0, 64)), 0);
  EXPECT_EQ(scene.pair.b.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_SUCCESS);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  UniqueFd last(dup(0));
  ASSERT_TRUE(last);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(last.get()) + 1;  // connect_raw() takes the last one
  last.reset();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const UniqueFd unknown = connect_raw(scene.connected().number());
  for (int i = 0; i < 100; ++i) (void)scene.pair.b.poll();  // also looks for clients
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(unknown);
  TcpGreeting question = scene.greeting();
  question.kind = GreetingKind::kConfirm;
  say(unknown, question);
  EXPECT_EQ(welcome_of(unknown), Welcome::kRefused);
  scene.expect_it_still_works();
}

/// A message that is refused after it has arrived completely does not affect the next one.
TEST(TcpMessages, AMessageRefusedAtItsEndDoesNotAffectTheNext) {
  constexpr std::size_t kLong = 1U << 20;
  const WireVariable variable("tcp");
  const QpSettings unreliable{.type = IBV_QPT_UC};
  Pair pair{unreliable, unreliable};
  const Memory from(pair.a_node, kLong);
  const Memory to(pair.b_node, kLong);
  ASSERT_EQ(pair.b.post_recv(to.slice(0, kLong), 1), 0);
  ASSERT_EQ(pair.b.post_recv(to.slice(0, kLong), 2), 0);
  ibv_send_wr invalidate = send_request(1);
  invalidate.opcode = IBV_WR_SEND_WITH_INV;
  invalidate.invalidate_rkey = 12345;  // no window has this key
  ASSERT_EQ(pair.a.post(invalidate, from.slice(0, kLong)), 0);
  ASSERT_EQ(pair.a.post(send_request(2), from.slice(0, 100)), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
  const ibv_wc wc = pair.b.next();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.byte_len, 100U);
}

/// Any client may send datagrams. A violation of the protocol ends only that connection.
TEST(TcpUnknownClients, InvalidRequestsEndTheConnection) {
  const WireVariable variable("tcp");
  Node node;
  QpSettings settings;
  settings.type = IBV_QPT_UD;
  Qp qp(node, settings);
  qp.get_ready();
  TcpGreeting greeting = connection_greeting(Service::kDatagram, 0x123456, qp.number());
  std::array<TcpRequest, 3> wrong;
  wrong[0].opcode = 200;
  wrong[1].opcode = IBV_WR_SEND;
  wrong[1].length = 1U << 31;
  wrong[2].opcode = IBV_WR_RDMA_READ;
  for (const TcpRequest& request : wrong) {
    const UniqueFd unknown = connect_raw(qp.number());
    ASSERT_TRUE(unknown);
    say(unknown, greeting);
    ASSERT_EQ(welcome_of(unknown), Welcome::kYes);
    say(unknown, request);
    EXPECT_TRUE(is_closed(unknown)) << int{request.opcode};
  }
  EXPECT_TRUE(qp.poll().empty());
}

/// READs by the test, and their data.
struct Reads : ManualScene {
  static constexpr std::uint32_t kMax = 64 * 1024;  // bytes of one READ
  Memory large{node, kMax};
  std::vector<std::byte> bytes = std::vector<std::byte>(kMax);

  void ask(std::uint32_t length, int count) const {
    TcpRequest read;
    read.opcode = IBV_WR_RDMA_READ;
    read.length = length;
    read.key = large.mr->rkey;
    read.address = large.address();
    const std::vector<TcpRequest> all(static_cast<std::size_t>(count), read);
    const auto size = static_cast<ssize_t>(all.size() * sizeof(read));
    ASSERT_EQ(::send(connection.get(), all.data(), static_cast<std::size_t>(size), MSG_NOSIGNAL), size);
  }
  /// Returns false if the connection has ended.
  [[nodiscard]] bool hear_answer(std::uint32_t length) {
    TcpAnswer answer;
    if (recv(connection.get(), &answer, sizeof(answer), MSG_WAITALL) != sizeof(answer)) return false;
    return recv(connection.get(), bytes.data(), length, MSG_WAITALL) == static_cast<ssize_t>(length);
  }
};

/// Answers that the peer does not read would use up memory.
TEST(TcpUnknownClients, TooManyUnreadAnswersEndTheConnection) {
  constexpr int kMany = 4000;
  for (const std::uint32_t length : {8U, 16U * 1024, 64U * 1024}) {
    Reads scene;
    scene.ask(length, kMany);
    int answered = 0;
    while (answered < kMany && scene.hear_answer(length)) ++answered;
    EXPECT_LT(answered, kMany) << "READs of " << length;
    const UniqueFd again = scene.peer.accept();
    EXPECT_EQ(hear<TcpGreeting>(again).initiator_qpn, scene.qp.number()) << "it is as if the connection had been lost";
  }
}

TEST(TcpUnknownClients, TheAllowedRequestsAreAnsweredEvenIfReadLate) {
  constexpr int kRounds = 500;
  for (const std::uint32_t length : {8U, 16U * 1024, 64U * 1024}) {
    Reads scene;
    const int little = 64 * 1024;
    setsockopt(scene.connection.get(), SOL_SOCKET, SO_RCVBUF, &little, sizeof(little));
    scene.ask(length, kMaxReadDepth);
    for (int i = 0; i < kRounds; ++i) {
      ASSERT_TRUE(scene.hear_answer(length)) << i << " of " << length;
      scene.ask(length, 1);
    }
    for (int i = 0; i < kMaxReadDepth; ++i) ASSERT_TRUE(scene.hear_answer(length)) << i << " of " << length;
  }
}

TEST(TcpVariable, WithMemoryAloneNoPortListens) {
  const WireVariable variable("memory");
  Node node;
  QpSettings settings;
  settings.type = IBV_QPT_UD;
  Qp qp(node, settings);
  qp.get_ready();
  EXPECT_FALSE(connect_raw(qp.number()));
}

TEST(TcpVariable, AnotherValuePreventsOpening) {
  for (const char* value : {"x", "TCP", "auto "}) {
    const WireVariable variable(value);
    const verbs::DeviceList list(api());
    errno = 0;
    EXPECT_EQ(api().open_device(list[0]), nullptr) << value;
    EXPECT_EQ(errno, EINVAL) << value;
  }
}

// ---- XRC

/// The greeting that the initiator of `scene` would send, except for the token.
TcpGreeting greeting_of(const Scene& scene) {
  TcpGreeting greeting = connection_greeting(Service::kXrc, scene.sender.number(), scene.receiver.number());
  greeting.path_mtu = 4096;
  greeting.token = 0x1234;  // unknown
  return greeting;
}

TEST(TcpXrc, UsesTcpAndAcceptsOnlyThePeer) {
  const WireVariable variable("tcp");
  Scene scene;
  UniqueFd unknown;
  EXPECT_EQ(welcome_once_asked(unknown, greeting_of(scene)), Welcome::kRefused)
      << "it is expected from there, and the initiator has said no";
  EXPECT_TRUE(is_closed(unknown));
  ASSERT_EQ(scene.queue.post(1, scene.to.slice(0, 100)), 0);
  ASSERT_EQ(scene.send(8), 0);
  EXPECT_EQ(scene.sender.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(scene.queue.next().wr_id, 1U);
}

/// A shared receive queue has a number like queue pairs, and accepts messages from any client, but only on this host.
TEST(TcpXrc, NoClientConnectsToAQueueOrASender) {
  const WireVariable variable("tcp");
  Scene scene;
  for (const Service service : {Service::kXrc, Service::kXrcQueue, Service::kDatagram, Service{}}) {
    for (const std::uint32_t number : {scene.queue.number(), scene.sender.number()}) {
      const UniqueFd unknown = connect_raw(number);
      ASSERT_TRUE(unknown);
      TcpGreeting greeting = greeting_of(scene);
      greeting.service = service;
      greeting.target_qpn = number;
      say(unknown, greeting);
      EXPECT_EQ(welcome_of(unknown), Welcome::kNotYet) << static_cast<int>(service);
    }
  }
}

/// If initiators take turns, an initiator of another host uses the number of the local queue pair that it is connected
/// to. Its own number may belong to another queue pair on this host.
TEST(TcpXrc, AnInitiatorOfAnotherHostUsesTheNumberOfItsLocalQueuePair) {
  LocalEnd end;
  end.qpn = 0x111111;
  end.service = Service::kXrc;
  EXPECT_EQ(end.at_xrc_queue(0x222222).turn(), 0x111111U);
  end.by_tcp = true;
  EXPECT_EQ(end.at_xrc_queue(0x222222).turn(), 0x222222U);
  EXPECT_EQ(end.at_xrc_queue(0x222222).service, Service::kXrcQueue);
}

class TcpSizes : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr std::size_t kMax = (3U << 20) + 5;
  static constexpr std::array<std::size_t, 9> kSizes = {0, 1, 48, 4096, 16384, 16385, 65536, 1U << 20, (3U << 20) + 5};
  WireVariable variable{"tcp"};
  Pair pair;
  Memory source{pair.a_node, kMax, kAllRemote, GetParam()};
  Memory target{pair.b_node, kMax, kAllRemote, GetParam()};

  void SetUp() override { source.fill(7); }
  /// Three slices of unequal lengths, except for the shortest messages.
  static std::vector<ibv_sge> slices(const Memory& memory, std::size_t bytes) {
    if (bytes < 3) return {memory.slice(0, bytes)};
    const std::size_t first = bytes / 3;
    return {memory.slice(0, first), memory.slice(first, 1), memory.slice(first + 1, bytes - first - 1)};
  }
  void expect_arrived(std::size_t bytes) {
    EXPECT_EQ(std::memcmp(source.data, target.data, bytes), 0) << bytes << " bytes";
    std::memset(target.data, 0, kMax);
  }
};

TEST_P(TcpSizes, Send) {
  for (const std::size_t bytes : kSizes) {
    auto into = slices(target, bytes);
    auto from = slices(source, bytes);
    ASSERT_EQ(pair.b.post_recv(into, 1), 0);
    ASSERT_EQ(pair.a.post(send_request(2), from), 0);
    EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
    const ibv_wc wc = pair.b.next();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.byte_len, bytes);
    expect_arrived(bytes);
  }
}

TEST_P(TcpSizes, WriteWithImmediate) {
  for (const std::size_t bytes : kSizes) {
    auto from = slices(source, bytes);
    ASSERT_EQ(pair.b.post_recv(std::span<ibv_sge>(), 1), 0);
    ibv_send_wr write = rdma_request(IBV_WR_RDMA_WRITE_WITH_IMM, 2, target.address(), target.mr->rkey);
    write.imm_data = htonl(77);
    ASSERT_EQ(pair.a.post(write, from), 0);
    EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
    const ibv_wc wc = pair.b.next();
    EXPECT_EQ(wc.byte_len, bytes);
    EXPECT_EQ(wc.imm_data, htonl(77));
    expect_arrived(bytes);
  }
}

TEST_P(TcpSizes, Read) {
  for (const std::size_t bytes : kSizes) {
    auto into = slices(target, bytes);
    ASSERT_EQ(pair.b.post(rdma_request(IBV_WR_RDMA_READ, 2, source.address(), source.mr->rkey), into), 0);
    const ibv_wc wc = pair.b.next();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    expect_arrived(bytes);
  }
}

/// Both directions at the same time, with more data than the sockets can hold: neither end waits for the other to read.
TEST_P(TcpSizes, BothWaysAtOnce) {
  for (std::uint64_t i = 0; i < 8; ++i) {
    ASSERT_EQ(
        pair.a.post(rdma_request(IBV_WR_RDMA_WRITE, i, target.address(), target.mr->rkey), source.slice(0, 1U << 20)),
        0);
    ASSERT_EQ(pair.b.post(rdma_request(IBV_WR_RDMA_READ, i, source.address(), source.mr->rkey),
                          target.slice(1U << 20, 1U << 20)),
              0);
  }
  for (std::uint64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(pair.a.next().wr_id, i);
    EXPECT_EQ(pair.b.next().wr_id, i);
  }
  EXPECT_EQ(std::memcmp(source.data, target.data, 1U << 20), 0);
  EXPECT_EQ(std::memcmp(source.data, target.data + (1U << 20), 1U << 20), 0);
}

std::string memory_name(const ::testing::TestParamInfo<bool>& own) {
  return own.param ? "OfTheApplication" : "OfTheLibrary";
}
INSTANTIATE_TEST_SUITE_P(Memories, TcpSizes, ::testing::Bool(), memory_name);

}  // namespace
}  // namespace rdmacomm::softdev::test
