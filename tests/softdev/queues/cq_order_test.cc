// The order in which a completion queue returns the receives of several queue pairs.
#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "softdev/local/peer.h"
#include "softdev/verbs/raw_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

/// Several connected pairs. The receiving ends share one completion queue.
struct OrderScene {
  Node from_node;
  Node to_node;
  Memory from{from_node};
  Memory to{to_node};
  verbs::SrqHandle srq;
  verbs::CqHandle cq{api(), api().create_cq(to_node.context.get(), 1024, nullptr, nullptr, 0)};
  std::vector<std::unique_ptr<Qp>> senders;
  std::vector<std::unique_ptr<Qp>> receivers;

  explicit OrderScene(std::size_t pairs, bool shared_receives = false) {
    if (shared_receives) {
      ibv_srq_init_attr init{};
      init.attr = {512, 1, 0};
      srq = verbs::SrqHandle(api(), api().create_srq(to_node.pd.get(), &init));
    }
    for (std::size_t i = 0; i < pairs; ++i) add_pair();
  }
  void add_pair() {
    QpSettings settings;
    settings.shared_cq = cq.get();
    settings.srq = srq.get();
    settings.depth = 64;
    senders.push_back(std::make_unique<Qp>(from_node));
    receivers.push_back(std::make_unique<Qp>(to_node, settings));
    connect(senders.size() - 1);
  }
  void connect(std::size_t pair) {
    senders[pair]->connect_to(receivers[pair]->number());
    receivers[pair]->connect_to(senders[pair]->number());
  }
  /// The memory of a receiver that its initiator maps.
  [[nodiscard]] std::unique_ptr<RemoteQp> shared_part(std::size_t pair) const {
    int error = 0;
    const auto peer = Peer::connect(receivers[pair]->number(), error);
    EXPECT_NE(peer, nullptr) << error;
    auto remote = peer->attach(receivers[pair]->number(), 0, error);
    EXPECT_NE(remote, nullptr) << error;
    return remote;
  }
  /// As on a host without a common clock of all CPUs.
  void stamp_by_counter() const {
    for (std::size_t pair = 0; pair < receivers.size(); ++pair) {
      shared_part(pair)->view.shared->stamping.store(Stamping::kByCounter);
    }
  }
  void post_receive(std::size_t pair) {
    if (srq.get() != nullptr) {
      ASSERT_EQ(post_shared_receive(srq.get(), pair, to.slice(0, 64)), 0);
    } else {
      ASSERT_EQ(receivers[pair]->post_recv(to.slice(0, 64), pair), 0);
    }
  }
  /// Sends message `number`, and waits until it has arrived.
  void send(std::size_t pair, std::uint32_t number) {
    ibv_send_wr wr = send_request(number);
    wr.opcode = IBV_WR_SEND_WITH_IMM;
    wr.imm_data = htonl(number);
    ASSERT_EQ(senders[pair]->post(wr, from.slice(0, 8)), 0);
    ASSERT_EQ(senders[pair]->next().status, IBV_WC_SUCCESS);
  }
  /// The same, with a receive for it.
  void deliver(std::size_t pair, std::uint32_t number) {
    post_receive(pair);
    send(pair, number);
  }
  std::vector<ibv_wc> poll(int count) {
    std::vector<ibv_wc> found(static_cast<std::size_t>(count));
    found.resize(static_cast<std::size_t>(ibv_poll_cq(cq.get(), count, found.data())));
    return found;
  }
  /// Polls until nothing is left, `at_a_time` completions at a time. Returns the messages' numbers.
  std::vector<std::uint32_t> poll_all(int at_a_time) {
    std::vector<std::uint32_t> numbers;
    for (auto found = poll(at_a_time); !found.empty(); found = poll(at_a_time)) {
      for (const ibv_wc& wc : found) numbers.push_back(ntohl(wc.imm_data));
    }
    return numbers;
  }
};

// Enough that messages arrive while a poll looks at the queue pairs.
constexpr std::size_t kPairs = 50;

const std::vector<std::uint32_t> kInOrder{0, 1, 2, 3, 4, 5, 6, 7};

TEST(CqOrder, IsTheOrderOfArrival) {
  for (const bool shared_receives : {false, true}) {
    OrderScene scene(4, shared_receives);
    for (const int at_a_time : {1, 3, 16}) {
      std::uint32_t number = 0;
      for (const std::size_t pair : {3, 1, 2, 0, 2, 3, 3, 1}) scene.deliver(pair, number++);
      EXPECT_EQ(scene.poll_all(at_a_time), kInOrder) << at_a_time << " at a time";
    }
  }
}

/// Two other threads send messages in turns while this one polls.
void expect_order_of_traffic(OrderScene& scene) {
  constexpr std::uint32_t kMessages = 10'000;
  for (std::size_t pair = 0; pair < kPairs; ++pair) {
    for (int i = 0; i < 8; ++i) scene.post_receive(pair);
  }
  std::atomic<std::uint32_t> next = 0;
  std::atomic<bool> ended = false;
  // The senders sleep until it is their turn, because more threads than processors would make this slow.
  const auto send_each_second = [&](std::uint32_t first) {
    std::minstd_rand draw(first + 1);
    for (std::uint32_t number = first; number < kMessages; number += 2) {
      for (auto seen = next.load(); seen != number && !ended; seen = next.load()) next.wait(seen);
      if (ended) return;
      scene.send(draw() % kPairs, number);
      next.store(number + 1);
      next.notify_all();
    }
  };
  std::jthread even(send_each_second, 0);
  std::jthread odd(send_each_second, 1);
  std::uint32_t expected = 0;
  bool in_order = true;
  unsigned empty_polls = 0;
  while (expected < kMessages && in_order) {
    const auto found = scene.poll(expected % 2 == 0 ? 1 : 16);
    // Rarely, because it should poll while messages arrive, but the senders need a processor.
    if (found.empty() && ++empty_polls % 256 == 0) std::this_thread::yield();
    for (const ibv_wc& wc : found) {
      in_order = in_order && ntohl(wc.imm_data) == expected++;
      scene.post_receive(wc.wr_id);
    }
  }
  ended = true;
  next.fetch_add(2 * kMessages);  // wakes both
  next.notify_all();
  EXPECT_TRUE(in_order) << "at message " << expected - 1;
}

TEST(CqOrder, HoldsWhileMessagesArrive) {
  for (const bool shared_receives : {false, true}) {
    OrderScene scene(kPairs, shared_receives);
    expect_order_of_traffic(scene);
  }
}

TEST(CqOrder, HoldsWithoutAClock) {
  OrderScene scene(kPairs);
  scene.stamp_by_counter();
  expect_order_of_traffic(scene);
}

TEST(CqOrder, IncludesTheMessagesFromBeforeASecondQueuePair) {
  OrderScene scene(1);
  scene.deliver(0, 0);
  scene.add_pair();
  scene.deliver(1, 1);
  scene.deliver(0, 2);
  scene.add_pair();
  scene.deliver(2, 3);
  scene.deliver(1, 4);
  EXPECT_EQ(scene.poll_all(1), (std::vector<std::uint32_t>{0, 1, 2, 3, 4}));
}

TEST(CqOrder, SurvivesAReset) {
  OrderScene scene(2);
  scene.deliver(0, 100);
  ASSERT_EQ(scene.receivers[1]->to_state(IBV_QPS_RESET), 0);
  ASSERT_EQ(scene.senders[1]->to_state(IBV_QPS_RESET), 0);
  scene.connect(1);
  scene.deliver(1, 101);
  scene.deliver(0, 102);
  EXPECT_EQ(scene.poll_all(1), (std::vector<std::uint32_t>{100, 101, 102}));
}

TEST(CqOrder, FlushedReceivesComeWhenTheQueuePairFailed) {
  for (const int at_a_time : {1, 16}) {
    OrderScene scene(3);
    scene.post_receive(0);
    scene.post_receive(0);
    scene.deliver(1, 1);
    ASSERT_EQ(scene.receivers[0]->to_state(IBV_QPS_ERR), 0);
    scene.deliver(2, 2);
    std::vector<std::uint64_t> pairs;
    for (auto found = scene.poll(at_a_time); !found.empty(); found = scene.poll(at_a_time)) {
      for (const ibv_wc& wc : found) {
        EXPECT_EQ(wc.status, wc.wr_id == 0 ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS);
        pairs.push_back(wc.wr_id);
      }
    }
    EXPECT_EQ(pairs, (std::vector<std::uint64_t>{1, 0, 0, 2}));
  }
}

/// A receive that is posted after the failure is flushed at its turn: programs drain a queue by such a marker, and one
/// that posts each flushed receive again must not keep messages waiting.
TEST(CqOrder, ReceivesPostedAfterTheFailureAreFlushedLater) {
  OrderScene scene(3);
  scene.post_receive(0);
  ASSERT_EQ(scene.receivers[0]->to_state(IBV_QPS_ERR), 0);
  scene.deliver(1, 1);
  scene.post_receive(0);
  scene.deliver(2, 2);
  std::vector<std::uint64_t> pairs;
  for (const ibv_wc& wc : scene.poll(16)) pairs.push_back(wc.wr_id);
  EXPECT_EQ(pairs, (std::vector<std::uint64_t>{0, 1, 0, 2}));
}

TEST(CqOrder, EndsWithTheSecondQueuePair) {
  OrderScene scene(2);
  EXPECT_NE(scene.shared_part(0)->view.shared->stamping.load(), Stamping::kNone);
  scene.deliver(0, 1);
  scene.receivers.pop_back();
  EXPECT_EQ(scene.shared_part(0)->view.shared->stamping.load(), Stamping::kNone);
  scene.deliver(0, 2);
  scene.senders.pop_back();
  scene.add_pair();
  scene.deliver(1, 3);
  scene.deliver(0, 4);
  EXPECT_EQ(scene.poll_all(1), (std::vector<std::uint32_t>{1, 2, 3, 4}));
}

/// Source: ibv_poll_cq(3). A program that waits for an event and then polls once relies on it.
TEST(CqOrder, APollReturnsAllIfThereIsRoom) {
  OrderScene scene(5);
  for (std::uint32_t number = 0; number < 60; ++number) scene.deliver(number * number % 5, number);
  const auto found = scene.poll(64);
  ASSERT_EQ(found.size(), 60U);
  for (std::uint32_t number = 0; number < 60; ++number) EXPECT_EQ(ntohl(found[number].imm_data), number);
}

/// A send completion for each poll must not keep the receives waiting.
TEST(CqOrder, SendsAndReceivesTakeTurns) {
  Node node;
  Memory memory(node);
  QpSettings settings;
  Qp first(node, settings);
  settings.shared_cq = first.cq.get();
  Qp second(node, settings);
  first.connect_to(second.number());
  second.connect_to(first.number());
  constexpr int kPolls = 16;
  for (std::uint64_t id = 0; id < kPolls; ++id) ASSERT_EQ(second.post_recv(memory.slice(0, 64), id), 0);
  int receives = 0;
  for (int i = 0; i < kPolls; ++i) {
    ASSERT_EQ(first.post(send_request(9), memory.slice(64, 8)), 0);
    if (first.next().opcode == IBV_WC_RECV) ++receives;
  }
  EXPECT_GT(receives, 0);
}

/// A peer can write any number.
TEST(CqOrder, WrongStampsLoseNothing) {
  for (const std::uint64_t wrong : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 63, UINT64_MAX}) {
    OrderScene scene(3);
    for (std::uint32_t number = 0; number < 9; ++number) scene.deliver(number % 3, number);
    scene.stamp_by_counter();
    const auto remote = scene.shared_part(1);
    for (std::uint32_t i = 0; i < 3; ++i) remote->view.slot(i).stamp() = wrong;
    remote->recv_cq->stamps.store(wrong);
    EXPECT_EQ(scene.poll_all(2).size(), 9U);
    scene.deliver(0, 9);
    scene.deliver(2, 10);
    EXPECT_EQ(scene.poll_all(2), (std::vector<std::uint32_t>{9, 10})) << wrong;
  }
}

}  // namespace
}  // namespace rdmacomm::softdev::test
