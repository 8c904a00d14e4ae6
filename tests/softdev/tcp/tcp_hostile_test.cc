// A peer on another host that violates the protocol: whatever numbers it sends, the queue pair ends the connection and
// the process continues. The test plays the peer.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <random>
#include <vector>

#include "softdev/memory/requests.h"
#include "softdev/queues/soft_qp.h"
#include "softdev/tcp/manual_scene.h"
#include "softdev/tcp/tcp_raw_client.h"
#include "softdev/verbs/raw_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

/// More bytes than a connection can hold: such a message is sent in part until its target reads.
constexpr std::size_t kEndless = 64U << 20;
constexpr std::uint32_t kShort = 8;

/// Short WRITEs, followed by a long one of which a part is sent.
struct HalfSent : ManualScene {
  Memory large{node, kEndless};

  HalfSent() {
    for (std::uint32_t i = 0; i < kShort; ++i) post_write(8);
    post_write(kEndless);
  }
  void post_write(std::size_t bytes) {
    ASSERT_EQ(qp.post(rdma_request(IBV_WR_RDMA_WRITE, 4, 0, 0), large.slice(0, bytes)), 0);
  }
  /// Reads past the long message to the end of the connection.
  void expect_the_end() { EXPECT_TRUE(ends(connection)); }
  /// Sends an answer; the connection may already have ended.
  void answer(std::uint32_t done, TcpAnswer::Kind kind = TcpAnswer::kDone) const {
    TcpAnswer answer;
    answer.done = done;
    answer.kind = kind;
    (void)::send(connection.get(), &answer, sizeof(answer), MSG_NOSIGNAL);
  }
  static bool ends(const UniqueFd& socket) {
    std::vector<std::byte> bytes(1U << 20);
    ssize_t got = 0;
    do got = recv(socket.get(), bytes.data(), bytes.size(), 0);
    while (got > 0);
    return got == 0 || errno == ECONNRESET;
  }
  /// Reads all posted data, or less if the connection ends before.
  void read_all_that_was_posted() const {
    std::vector<std::byte> all((kShort + 1) * sizeof(TcpRequest) + kShort * 8 + kEndless);
    (void)recv(connection.get(), all.data(), all.size(), MSG_WAITALL);
  }
};

TEST(TcpHostile, ReadyWithoutNotReadyEndsTheConnection) {
  HalfSent scene;
  scene.answer(0, TcpAnswer::kReady);
  scene.expect_the_end();
}

/// Requests that are to be sent again are reported as done meanwhile. So their numbers are lower than all numbers that
/// are kept.
TEST(TcpHostile, NumbersBelowAllKeptOnesDoNotCrash) {
  HalfSent scene;
  scene.answer(0, TcpAnswer::kReady);
  scene.answer(kShort);
  scene.read_all_that_was_posted();
  scene.answer(1009);
  scene.expect_the_end();
}

/// A request that must be sent again from its beginning cannot be done before that.
TEST(TcpHostile, ARequestCannotBeDoneBeforeItIsSentAgain) {
  HalfSent scene;
  scene.answer(0, TcpAnswer::kNotReady);
  scene.answer(0, TcpAnswer::kReady);
  scene.answer(kShort);
  scene.expect_the_end();
}

TEST(TcpHostile, ARequestThatWasNotSentCannotBeDone) {
  HalfSent scene;
  scene.answer(0, TcpAnswer::kNotReady);
  scene.answer(0, TcpAnswer::kReady);
  scene.read_all_that_was_posted();
  scene.answer(1009);
  scene.expect_the_end();
}

TEST(TcpHostile, RequestsAreSentAgainFromTheReportedNumber) {
  HalfSent scene;
  scene.answer(2, TcpAnswer::kNotReady);
  scene.answer(2, TcpAnswer::kReady);
  scene.read_all_that_was_posted();
  const auto again = hear<TcpRequest>(scene.connection);
  EXPECT_EQ(again.again, 1U);
  EXPECT_EQ(again.length, 8U);
  scene.answer(1);  // less than it has already reported
  scene.expect_the_end();
}

TEST(TcpHostile, ARequestThatWasNotSentCannotFail) {
  ManualScene scene;
  scene.post();
  (void)scene.next_request();
  scene.answer(1, TcpAnswer::kFailed);
  EXPECT_TRUE(is_closed(scene.connection));
}

TEST(TcpHostile, ARequestThatWasNotSentCannotWait) {
  ManualScene scene;
  scene.post();
  (void)scene.next_request();
  scene.answer(1, TcpAnswer::kNotReady);
  EXPECT_TRUE(is_closed(scene.connection));
}

TEST(TcpHostile, AReadCannotBeAnsweredBeforeItIsSentAgain) {
  ManualScene scene;
  const Memory large(scene.node, kEndless);
  ASSERT_EQ(scene.qp.post(rdma_request(IBV_WR_RDMA_READ, 4, 0, 0), scene.memory.slice(256, 8)), 0);
  ASSERT_EQ(scene.qp.post(rdma_request(IBV_WR_RDMA_WRITE, 5, 0, 0), large.slice(0, kEndless)), 0);
  scene.answer(0, TcpAnswer::kNotReady);
  scene.answer(0, TcpAnswer::kReady);
  scene.answer(1, TcpAnswer::kPayload, 8);
  EXPECT_TRUE(HalfSent::ends(scene.connection));
}

TEST(TcpHostile, OnlyKnownBytesAreOperations) {
  std::vector<unsigned> known;
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (is_remote_opcode(static_cast<std::uint8_t>(byte))) known.push_back(byte);
  }
  EXPECT_EQ(known,
            (std::vector<unsigned>{IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
                                   IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD,
                                   IBV_WR_SEND_WITH_INV, kWrFlush, kWrAtomicWrite}));
}

TEST(TcpHostile, AnUnknownOperationEndsTheConnection) {
  for (const std::uint8_t opcode : {std::uint8_t{IBV_WR_LOCAL_INV}, std::uint8_t{97}, std::uint8_t{255}}) {
    const ManualScene scene;
    TcpRequest request;
    request.opcode = opcode;
    say(scene.connection, request);
    EXPECT_TRUE(is_closed(scene.connection)) << unsigned{opcode};
  }
}

TEST(TcpHostile, AnOperationOfTheWrongLengthEndsTheConnection) {
  const std::pair<ibv_wr_opcode, std::uint32_t> wrong[] = {
      {IBV_WR_ATOMIC_FETCH_AND_ADD, 4}, {kWrAtomicWrite, 4}, {kWrAtomicWrite, 16}, {kWrFlush, 1}};
  for (const auto& [opcode, length] : wrong) {
    const ManualScene scene;
    TcpRequest request;
    request.opcode = static_cast<std::uint8_t>(opcode);
    request.length = length;
    say(scene.connection, request);
    EXPECT_TRUE(is_closed(scene.connection)) << unsigned{opcode} << ", " << length;
  }
}

/// A refused unknown client: its data is read only for a short time.
TEST(TcpHostile, ARefusedClientIsDisconnected) {
  const ManualScene scene;
  const UniqueFd unknown = connect_raw(scene.qp.number());
  say(unknown, std::uint64_t{0});  // not a greeting
  EXPECT_EQ(welcome_of(unknown), Welcome::kRefused);
  const std::vector<std::byte> more(1U << 20);
  std::size_t megabytes = 0;
  while (megabytes < 64 && send(unknown.get(), more.data(), more.size(), MSG_NOSIGNAL) > 0) ++megabytes;
  EXPECT_LT(megabytes, 64U);
}

/// A queue pair of this host may hold its send queue for seconds, while it looks for a stopped process.
TEST(TcpHostile, AClientThatNamesABusyQueuePairDelaysNoOther) {
  ManualScene scene;
  Qp busy(scene.node);
  const std::scoped_lock held(SoftQp::from(busy.qp.get()).as_tcp_owner()->send_lock());
  TcpGreeting greeting;
  greeting.service = Service::kReliable;
  for (const GreetingKind kind : {GreetingKind::kConnection, GreetingKind::kConfirm}) {
    const UniqueFd unknown = connect_raw(scene.qp.number());
    greeting.kind = kind;
    greeting.initiator_qpn = greeting.target_qpn = busy.number();
    say(unknown, greeting);
    EXPECT_EQ(welcome_of(unknown), kind == GreetingKind::kConfirm ? Welcome::kRefused : Welcome::kNotYet);
    EXPECT_TRUE(is_closed(unknown));
  }
}

/// A hundred targets that send random numbers.
TEST(TcpHostile, RandomNumbersDoNotCrash) {
  constexpr unsigned kTargets = 100;
  const std::array<std::uint32_t, 12> numbers{0, 1, 2, 3, 4, 7, 8, 9, 1009, 0x7fffffff, 0x80000000, 0xffffffff};
  const WireVariable variable("tcp");
  Node node;
  Memory large(node, 1U << 20);
  for (unsigned seed = 0; seed < kTargets; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto any = [&] { return numbers.at(random() % numbers.size()); };
    ManualScene scene;
    const Memory own(scene.node, kEndless);
    for (unsigned i = 0; i < kShort; ++i) {
      const bool is_read = random() % 4 == 0;
      const bool is_long = random() % 4 == 0;
      ASSERT_EQ(scene.qp.post(rdma_request(is_read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, i, 0, 0),
                              own.slice(0, is_long ? kEndless : 8)),
                0);
    }
    std::vector<std::byte> some(64U << 10);
    for (unsigned words = 0; words < 24; ++words) {
      TcpAnswer answer;
      answer.kind = static_cast<TcpAnswer::Kind>(random() % 8);
      answer.status = static_cast<std::uint8_t>(random());
      answer.rnr_timer = static_cast<std::uint8_t>(random());
      answer.done = any();
      answer.length = random() % 2 == 0 ? 8 : any();
      TcpRequest request;
      request.opcode = static_cast<std::uint8_t>(random() % 2 == 0 ? random() : random() % 16);
      request.again = random() % 2;
      request.done = any();
      request.length = any();
      request.key = any();
      request.queue = any();
      request.address = any();
      const bool is_answer = random() % 4 != 0;
      const void* const message = is_answer ? static_cast<const void*>(&answer) : &request;
      const std::size_t bytes = is_answer ? sizeof(answer) : sizeof(request);
      if (send(scene.connection.get(), message, bytes, MSG_NOSIGNAL) < 0) break;
      (void)recv(scene.connection.get(), some.data(), some.size(), MSG_DONTWAIT);
      (void)scene.qp.poll();
    }
    scene.connection.reset();
  }
}

}  // namespace
}  // namespace rdmacomm::softdev::test
