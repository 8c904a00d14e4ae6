// Datagrams by TCP, to a peer that is played by the test.
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "softdev/local/few_descriptors.h"
#include "softdev/local/two_processes.h"
#include "softdev/queues/datagrams.h"
#include "softdev/queues/soft_qp.h"
#include "softdev/tcp/tcp_raw_client.h"
#include "support/forked_child.h"

namespace rdmacomm::softdev::test {
namespace {

constexpr std::uint32_t kDatagramBytes = 4096;
constexpr std::uint32_t kManyDatagrams = 100;  // more than can wait without a connection

/// A queue pair, and the address of the peer.
struct Sender {
  WireVariable variable{"tcp"};
  Node node;
  Memory memory{node, kDatagramBytes};
  Qp qp{node, {.type = IBV_QPT_UD, .depth = kManyDatagrams}};
  Address to_peer{node};
  std::uint32_t target;

  explicit Sender(const ManualPeer& peer) : target(peer.number) { qp.get_ready(); }
  void post(std::uint32_t number) {
    ibv_send_wr wr = datagram(number, to_peer, target);
    wr.opcode = IBV_WR_SEND_WITH_IMM;
    wr.imm_data = number;
    ASSERT_EQ(qp.post(wr, memory.slice(0, kDatagramBytes)), 0);
  }
};

/// The kernel first repeats the first packet of a connection after a second.
TEST(TcpDatagrams, WaitForAConnectionWhoseFirstPacketsAreLost) {
  const ManualPeer peer;
  Sender sender(peer);
  // One connection waits to be accepted, and no other fits in the queue: the kernel drops the packets of further
  // clients.
  ASSERT_EQ(listen(peer.listener.get(), 0), 0);
  const UniqueFd first = connect_raw(peer.number);
  ASSERT_TRUE(first);
  for (std::uint32_t number = 0; number < kManyDatagrams; ++number) sender.post(number);
  const auto both_were_lost = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
  std::size_t done = 0;
  while (std::chrono::steady_clock::now() < both_were_lost) done += sender.qp.poll().size();
  EXPECT_LT(done, kManyDatagrams);

  (void)peer.accept();
  const UniqueFd its_datagrams = peer.accept();
  EXPECT_EQ(hear<TcpGreeting>(its_datagrams).initiator_qpn, sender.qp.number());
  welcome(its_datagrams);
  for (std::uint32_t number = 0; number < kManyDatagrams; ++number) {
    ASSERT_EQ(hear<TcpRequest>(its_datagrams).immediate, number);
    (void)hear<TcpDatagramAddress>(its_datagrams);
    (void)hear<std::array<std::byte, kDatagramBytes>>(its_datagrams);
  }
  for (; done < kManyDatagrams; ++done) EXPECT_EQ(sender.qp.next().status, IBV_WC_SUCCESS);
}

/// Datagram `number` must arrive, although its sender ends as soon as it is complete.
void expect_last_datagram(const ManualPeer& peer, std::uint32_t number) {
  const UniqueFd its_datagrams = peer.accept();
  EXPECT_EQ(hear<TcpGreeting>(its_datagrams).service, Service::kDatagram);
  welcome(its_datagrams);
  EXPECT_EQ(hear<TcpRequest>(its_datagrams).immediate, number);
  (void)hear<TcpDatagramAddress>(its_datagrams);
  (void)hear<std::array<std::byte, kDatagramBytes>>(its_datagrams);
  EXPECT_TRUE(is_closed(its_datagrams));
}

TEST(TcpDatagrams, AreSentAfterTheirQueuePairHasEnded) {
  const ManualPeer peer;
  std::jthread ending([&peer] {
    Sender sender(peer);
    sender.post(5);
    EXPECT_EQ(sender.qp.next().status, IBV_WC_SUCCESS);
  });  // destroys the queue pair and closes the device
  expect_last_datagram(peer, 5);
}

TEST(TcpDatagrams, AreSentBeforeTheProcessEnds) {
  const ManualPeer peer;
  const rdmacomm::testing::ForkedChild child([&peer](int) {
    auto* const sender = new Sender(peer);  // never destroyed
    sender->post(6);
    EXPECT_EQ(sender->qp.next().status, IBV_WC_SUCCESS);
    std::exit(0);
  });
  expect_last_datagram(peer, 6);
}

// ---- More senders than there is room for

constexpr std::size_t kSenders = FewDescriptors::kDescriptors / 4;  // the device's limit

/// Connects to queue pair `qpn` as a sender of datagrams, each time a different one. The test plays it.
UniqueFd come_as_sender(std::uint32_t qpn) {
  static std::uint32_t number = 0x700000;
  UniqueFd socket = connect_raw(qpn);
  if (!socket) return socket;
  TcpGreeting greeting = connection_greeting(Service::kDatagram, ++number, qpn);
  greeting.path_mtu = kDatagramBytes;
  say(socket, greeting);
  EXPECT_EQ(welcome_of(socket), Welcome::kYes);
  return socket;
}

void send_datagram(const UniqueFd& socket, std::uint32_t bytes = 8, std::uint32_t key = kUd.qkey,
                   const TcpDatagramAddress& address = {}) {
  TcpRequest head;
  head.opcode = IBV_WR_SEND;
  head.length = bytes;
  head.key = key;
  std::vector<std::byte> whole(sizeof(head) + sizeof(TcpDatagramAddress) + bytes);
  std::memcpy(whole.data(), &head, sizeof(head));
  std::memcpy(whole.data() + sizeof(head), &address, sizeof(address));
  ASSERT_EQ(::send(socket.get(), whole.data(), whole.size(), MSG_NOSIGNAL), static_cast<ssize_t>(whole.size()));
}

/// A posting thread may hold the send queue for seconds, while it looks for a stopped process on this host.
TEST(TcpDatagrams, OfABusySenderDelayNoOther) {
  const ManualPeer peer;
  Sender sender(peer);
  sender.post(0);
  UniqueFd its_datagrams = peer.accept();
  (void)hear<TcpGreeting>(its_datagrams);
  welcome(its_datagrams);
  EXPECT_EQ(sender.qp.next().status, IBV_WC_SUCCESS);
  const std::scoped_lock held(SoftQp::from(sender.qp.qp.get()).as_tcp_owner()->send_lock());
  its_datagrams.reset();  // the send queue must be informed of it
  const UniqueFd other = come_as_sender(sender.qp.number());
  EXPECT_TRUE(other);
}

/// While peers are asked to confirm their greetings, more unknown clients connect than are accepted at a time.
TEST(TcpUnknownClients, DoNotDisplaceExpectedPeers) {
  constexpr std::size_t kExpected = 10;
  constexpr std::size_t kUnknownClients = kSenders + kExpected;
  const WireVariable variable("tcp");
  Node node;
  const ManualPeer peer(ManualPeer::Place::kFirst);
  ASSERT_EQ(listen(peer.listener.get(), 100), 0);
  std::vector<std::unique_ptr<Qp>> qps;
  std::vector<UniqueFd> calls;
  for (std::size_t i = 0; i < kExpected; ++i) {
    qps.push_back(std::make_unique<Qp>(node));
    qps.back()->connect_to(peer.number);
    calls.push_back(peer.accept());
  }
  const FewDescriptors few;
  std::vector<UniqueFd> expected;
  std::vector<UniqueFd> questions;
  for (const auto& qp : qps) {
    TcpGreeting greeting = connection_greeting(Service::kReliable, peer.number, qp->number());
    expected.push_back(connect_raw(qp->number()));
    say(expected.back(), greeting);
    questions.push_back(peer.accept());
    EXPECT_EQ(hear<TcpGreeting>(questions.back()).kind, GreetingKind::kConfirm);
  }
  std::vector<UniqueFd> unknown_clients(kUnknownClients);
  for (UniqueFd& one : unknown_clients) one = connect_raw(qps[0]->number());
  const UniqueFd last = connect_raw(qps[0]->number());
  say(last, std::uint64_t{0});  // not a greeting
  EXPECT_EQ(welcome_of(last), Welcome::kRefused) << "all before it have been let in";
  for (const UniqueFd& question : questions) welcome(question);
  for (const UniqueFd& one : expected) EXPECT_EQ(welcome_of(one), Welcome::kYes);
}

bool is_over(const UniqueFd& socket) {
  pollfd end{socket.get(), POLLRDHUP, 0};
  return poll(&end, 1, 0) != 0;
}

/// A queue pair with receives, and its senders.
struct DatagramReceiver {
  static constexpr std::uint32_t kReceives = 512;
  WireVariable variable{"tcp"};
  Node node;
  Memory memory{node, 2 * kDatagramBytes};
  Qp qp{node, {.type = IBV_QPT_UD, .depth = kReceives}};
  FewDescriptors few;

  explicit DatagramReceiver(std::uint32_t receives = kReceives) {
    qp.get_ready();
    post(receives);
  }
  void post(std::uint32_t receives) {
    for (std::uint32_t i = 0; i < receives; ++i) ASSERT_EQ(qp.post_recv(memory.slice(0, 2 * kDatagramBytes), i), 0);
  }
  [[nodiscard]] std::vector<UniqueFd> senders(std::size_t count) const {
    std::vector<UniqueFd> all(count);
    for (UniqueFd& one : all) one = come_as_sender(qp.number());
    return all;
  }
  void expect_datagrams(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(qp.next().status, IBV_WC_SUCCESS) << i;
    EXPECT_TRUE(qp.poll().empty());
  }
};

TEST(TcpSenders, UnknownClientsTakeALimitedNumberOfDescriptors) {
  DatagramReceiver receiver;
  const std::vector<UniqueFd> unknown_clients = receiver.senders(2 * kSenders);
  for (std::size_t i = 0; i < unknown_clients.size(); ++i) {
    if (i < kSenders) {
      ASSERT_TRUE(is_closed(unknown_clients[i])) << i;
    } else {
      EXPECT_FALSE(is_over(unknown_clients[i])) << i;
    }
  }
  send_datagram(unknown_clients.back());
  receiver.expect_datagrams(1);
}

/// Any user of this host may connect and claim any address.
TEST(TcpSenders, AProcessOfThisHostCannotSendUnderAForeignAddress) {
  DatagramReceiver receiver;
  const UniqueFd sender = come_as_sender(receiver.qp.number());
  TcpDatagramAddress address;
  address.is_global = 1;
  address.source = gid_at(receiver.node, 0);
  address.source.raw[15] ^= 1;
  send_datagram(sender, 8, kUd.qkey, address);
  address.source = gid_at(receiver.node, 1);
  send_datagram(sender, 9, kUd.qkey, address);
  address.is_global = 0;
  address.source_lid = 0x1234;  // no device here has it
  send_datagram(sender, 10, kUd.qkey, address);
  address.source_lid = 0;
  send_datagram(sender, 11, kUd.qkey, address);
  EXPECT_EQ(receiver.qp.next().byte_len, sizeof(ibv_grh) + 9);
  EXPECT_EQ(receiver.qp.next().byte_len, sizeof(ibv_grh) + 11);
}

/// Their processes share no memory, and an address handle to this host does not say which process has the target.
TEST(TcpSenders, AnotherUsersProcessIsReachedByTcp) {
  constexpr uid_t kNobody = 65534;
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  const rdmacomm::testing::EnvironmentVariable usual(kTcpVariable, "");
  Child sender([](Line line) {
    ASSERT_EQ(setresgid(kNobody, kNobody, kNobody), 0);
    ASSERT_EQ(setresuid(kNobody, kNobody, kNobody), 0);
    Node node;
    const Memory memory(node);
    Qp qp(node, kUd);
    qp.get_ready();
    const Address here(node);
    const QueueInfo target = line.receive();
    for (std::uint64_t i = 1; i <= 2; ++i) {
      ASSERT_EQ(qp.post(datagram(i, here, target.qpn), memory.slice(0, 7 + i)), 0);
      EXPECT_EQ(qp.next().status, IBV_WC_SUCCESS);
    }
    (void)line.receive();  // they have arrived
  });
  Node node;
  const Memory memory(node, 2 * kDatagramBytes);
  Qp qp(node, kUd);
  qp.get_ready();
  for (std::uint64_t i = 1; i <= 2; ++i) ASSERT_EQ(qp.post_recv(memory.slice(0, 2 * kDatagramBytes), i), 0);
  sender.line().send({.qpn = qp.number()});
  EXPECT_EQ(qp.next().byte_len, sizeof(ibv_grh) + 8);
  EXPECT_EQ(qp.next().byte_len, sizeof(ibv_grh) + 9);
  sender.line().send({});
  EXPECT_EQ(sender.wait(), 0);
}

TEST(TcpSenders, UnknownClientsDoNotDisplaceSendersWithTheKey) {
  DatagramReceiver receiver;
  const std::vector<UniqueFd> friends = receiver.senders(kSenders / 2);
  for (const UniqueFd& one : friends) send_datagram(one);
  receiver.expect_datagrams(friends.size());
  const std::vector<UniqueFd> unknown_clients = receiver.senders(2 * kSenders);
  send_datagram(unknown_clients.back(), 8, kUd.qkey + 1);
  for (const UniqueFd& one : friends) send_datagram(one);
  receiver.expect_datagrams(friends.size());
}

/// Datagrams from before a disconnect are received, whatever later clients do.
TEST(TcpSenders, DatagramsOfMoreSendersThanPlacesAreNotLost) {
  DatagramReceiver receiver;
  constexpr std::size_t kMany = 4 * kSenders;
  for (std::size_t i = 0; i < kMany; ++i) send_datagram(come_as_sender(receiver.qp.number()));
  receiver.expect_datagrams(kMany);
  std::vector<UniqueFd> senders;
  for (std::size_t i = 0; i < 2 * kSenders; ++i) {
    senders.push_back(come_as_sender(receiver.qp.number()));
    send_datagram(senders.back());
  }
  receiver.expect_datagrams(senders.size());
}

/// A sender whose datagram waits for a receive is not disconnected.
TEST(TcpSenders, ASenderWithAWaitingDatagramIsNotDisconnected) {
  constexpr std::chrono::milliseconds kWaits{200};  // shorter than the 250 ms for which it waits
  for (int attempt = 0; attempt < 100; ++attempt) {
    DatagramReceiver receiver(0);
    const auto begin = std::chrono::steady_clock::now();
    const UniqueFd sender = come_as_sender(receiver.qp.number());
    send_datagram(sender);
    const std::vector<UniqueFd> unknown_clients = receiver.senders(kSenders + 8);
    EXPECT_FALSE(is_over(sender));
    receiver.post(1);
    if (std::chrono::steady_clock::now() - begin >= kWaits) continue;
    return receiver.expect_datagrams(1);
  }
  GTEST_SKIP() << "too slow a machine";
}

TEST(TcpSenders, ADisconnectedSenderReconnects) {
  DatagramReceiver receiver;
  Node node;
  const Memory memory(node, 64);
  Qp sender(node, kUd);
  sender.get_ready();
  const Address to(node);
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(sender.post(datagram(1, to, receiver.qp.number()), memory.slice(0, 64)), 0);
    EXPECT_EQ(sender.next().status, IBV_WC_SUCCESS);
    receiver.expect_datagrams(1);
    const std::vector<UniqueFd> others = receiver.senders(kSenders / 2);
    for (const UniqueFd& one : others) send_datagram(one);
    receiver.expect_datagrams(others.size());
    const std::vector<UniqueFd> more = receiver.senders(kSenders / 2);
    for (const UniqueFd& one : more) send_datagram(one);
    receiver.expect_datagrams(more.size());
  }
}

/// The buffer is small at first.
TEST(TcpSenders, LongAndShortDatagramsAlternate) {
  DatagramReceiver receiver;
  for (const std::uint32_t first : {0U, 100U, 416U, 417U, 1000U, 4096U}) {
    const UniqueFd sender = come_as_sender(receiver.qp.number());
    for (const std::uint32_t bytes : {first, 4096U, 0U, 4096U, 1U}) {
      send_datagram(sender, bytes, kUd.qkey + 1);  // refused: wrong key
      send_datagram(sender, bytes);
      const ibv_wc wc = receiver.qp.next();
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
      EXPECT_EQ(wc.byte_len, bytes + 40) << "after " << first;
    }
  }
}

}  // namespace
}  // namespace rdmacomm::softdev::test
