// A peer can make a session allocate memory. If none is available, only that peer's connection ends.
#include <gmock/gmock.h>
#include <pthread.h>

#include <fstream>
#include <future>

#include "connector/handshake.h"
#include "session/session_test_tools.h"
#include "support/allocation_counter.h"
#include "support/raw_socket.h"

namespace rdmacomm {
namespace {

using namespace rdmacomm::testing;  // NOLINT(google-build-using-namespace): the tools of this test

bool runs_thread(const std::string& wanted) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name == wanted) return true;
  }
  return false;
}

/// Waits for the end of all handshakes of all servers in this process.
[[nodiscard]] bool handshakes_are_over() {
  const Deadline deadline = soon();
  while (runs_thread("rdma-handshake")) {
    if (deadline.passed()) return false;
    std::this_thread::yield();
  }
  return true;
}

/// A client's HELLO, and the header of a message of `bytes` bytes, without the message itself.
std::vector<std::byte> hello_and_promise(MessageType type, std::size_t bytes) {
  auto stream = *frame_message(MessageType::kHello, Hello::of_this_process().encode());
  const auto header = MessageHeader{.type = type, .length = static_cast<std::uint32_t>(bytes)}.encode();
  stream.insert(stream.end(), header.begin(), header.end());
  return stream;
}

/// Covers the handshake until the application decides about the client. After that, the device allocates memory, too.
TEST(SessionMemory, AnyAllocationForAnUnacceptedClientMayFail) {
  if (!FailingAllocation::possible()) GTEST_SKIP() << "operator new is the sanitizer's";
  const auto server = make_server();
  ASSERT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  server.hooks->configure = [](HcaConfig&, const PeerInfo&) { return make_error(Errc::kPeerRefused, "not now"); };
  int number = 0;
  for (bool reached = true; reached;) {
    const FailingAllocation failing({.thread = "rdma-handshake", .number = ++number});
    EXPECT_FALSE(client->connect()) << "allocation " << number;
    ASSERT_TRUE(handshakes_are_over()) << "allocation " << number;
    reached = failing.reached();
  }
  EXPECT_GT(number, 20) << "a handshake takes more memory than that";
  EXPECT_GT(server.hooks->record.count("connect_failed Cannot allocate memory"), 10);
  server.hooks->configure = nullptr;
  const auto endpoint = client->connect();
  EXPECT_TRUE(endpoint) << endpoint.status().message();
}

TEST(SessionMemory, AnyAllocationOfTheControlThreadMayFail) {
  if (!FailingAllocation::possible()) GTEST_SKIP() << "operator new is the sanitizer's";
  const auto server = make_server();
  ASSERT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  server.hooks->configure = [](HcaConfig&, const PeerInfo&) { return make_error(Errc::kPeerRefused, "not now"); };
  constexpr int kMoreThanItNeeds = 40;
  int reached = 0;
  for (int number = 1; number <= kMoreThanItNeeds; ++number) {
    const FailingAllocation failing({.thread = "rdma-control", .number = number});
    const auto refused = client->connect();
    // If no thread could be started for its handshake, the client tries again, and then receives the application's
    // refusal.
    EXPECT_FALSE(refused) << "allocation " << number;
    EXPECT_THAT(refused.status().message(), ::testing::Not(::testing::HasSubstr("allocate")))
        << "allocation " << number;
    ASSERT_TRUE(handshakes_are_over()) << "allocation " << number;
    if (failing.reached()) ++reached;
  }
  EXPECT_GT(reached, 10);
  server.hooks->configure = nullptr;
  const auto endpoint = client->connect();
  EXPECT_TRUE(endpoint) << endpoint.status().message();
}

TEST(SessionMemory, AMessageThatCannotBeKeptEndsItsConnectionAlone) {
  if (!FailingAllocation::possible()) GTEST_SKIP() << "operator new is the sanitizer's";
  const auto server = make_server();
  ASSERT_TRUE(server->start().ok());
  const auto client = make_client(*server);
  const auto other = make_client(*server);
  const auto endpoint = client->connect();
  ASSERT_TRUE(endpoint) << endpoint.status().message();
  const auto at_server = server->accept(soon());
  ASSERT_TRUE(at_server);
  const std::vector<std::byte> large(kMaxPayloadBytes);
  std::promise<void> starved;
  auto received = std::async(std::launch::async, [&] {
    pthread_setname_np(pthread_self(), "starved");
    const FailingAllocation failing({.thread = "starved", .from_bytes = 4096});
    starved.set_value();
    return (*at_server).receive_message(soon());
  });
  starved.get_future().wait();
  (void)(*endpoint).send_message(large, soon());
  EXPECT_EQ(received.get().code(), std::errc::not_enough_memory);
  EXPECT_TRUE(client.hooks->record.wait_for("disconnected refused by the peer")) << "the peer is told";
  const auto next = other->connect();
  EXPECT_TRUE(next) << next.status().message();
}

TEST(SessionMemory, NoMessageLongerThanAnOfferIsReadBeforeTheOffer) {
  const auto server = make_server();  // its handshake_timeout is much longer than this test
  ASSERT_TRUE(server->start().ok());
  for (const auto type : {MessageType::kOffer, MessageType::kUser}) {
    const int before = server.hooks->record.count("connect_failed bad message");
    const RawSocket unknown(server->port());
    ASSERT_TRUE(unknown.send(hello_and_promise(type, kMaxOfferBytes + 1)));
    EXPECT_TRUE(server.hooks->record.wait_for("connect_failed bad message", before + 1));
  }
  EXPECT_THAT(server.hooks->reasons.lines().back(), ::testing::HasSubstr("at most " + std::to_string(kMaxOfferBytes)));
}

}  // namespace
}  // namespace rdmacomm
