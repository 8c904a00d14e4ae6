// One completion queue for more send queues than a poll visits one by one.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "softdev/queues/sender_news.h"
#include "softdev/verbs/raw_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

constexpr std::size_t kMany = 2 * SenderNews::kWorthwhile + 2;

class ManySenders : public ::testing::Test {
 protected:
  void add_pair() {
    QpSettings settings;
    settings.shared_cq = cq_.get();
    settings.signal_all = false;
    senders_.push_back(std::make_unique<Qp>(from_node_, settings));
    receivers_.push_back(std::make_unique<Qp>(to_node_));
    connect(senders_.size() - 1);
  }
  void add_pairs(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) add_pair();
  }
  void connect(std::size_t pair) {
    senders_[pair]->connect_to(receivers_[pair]->number());
    receivers_[pair]->connect_to(senders_[pair]->number());
  }
  void write(std::size_t pair, std::uint64_t id, bool is_signaled = true) {
    ibv_send_wr wr = rdma_request(IBV_WR_RDMA_WRITE, id, to_.address(), to_.mr->rkey);
    wr.send_flags = is_signaled ? IBV_SEND_SIGNALED : 0;
    ASSERT_EQ(senders_[pair]->post(wr, from_.slice(0, 8)), 0);
  }
  std::vector<ibv_wc> poll(int count) {
    std::vector<ibv_wc> found(static_cast<std::size_t>(count));
    found.resize(static_cast<std::size_t>(ibv_poll_cq(cq_.get(), count, found.data())));
    for (const ibv_wc& wc : found) EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    return found;
  }

  /// The next `count` completions. Over TCP they arrive later.
  std::vector<ibv_wc> take(std::size_t count) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    std::vector<ibv_wc> found;
    while (found.size() < count && std::chrono::steady_clock::now() < end) {
      const auto more = poll(static_cast<int>(std::min<std::size_t>(count - found.size(), 7)));
      found.insert(found.end(), more.begin(), more.end());
    }
    EXPECT_EQ(found.size(), count);
    found.resize(count);
    return found;
  }

  Node from_node_;
  Node to_node_;
  Memory from_{from_node_};
  Memory to_{to_node_};
  verbs::CqHandle cq_{api(), api().create_cq(from_node_.context.get(), 1 << 14, nullptr, nullptr, 0)};
  std::vector<std::unique_ptr<Qp>> senders_;
  std::vector<std::unique_ptr<Qp>> receivers_;
};

TEST_F(ManySenders, EachGetsItsTurn) {
  add_pairs(kMany);
  for (std::size_t pair = 0; pair < kMany; ++pair) {
    for (int i = 0; i < 2; ++i) write(pair, pair);
  }
  for (int round = 0; round < 2; ++round) {
    std::vector<bool> had(kMany);
    for (std::size_t i = 0; i < kMany; ++i) {
      const auto found = poll(1);
      ASSERT_EQ(found.size(), 1U);
      EXPECT_FALSE(had[found[0].wr_id]) << found[0].wr_id;
      had[found[0].wr_id] = true;
    }
  }
  EXPECT_TRUE(poll(16).empty());
}

TEST_F(ManySenders, NoCompletionIsLost) {
  const unsigned seed = std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto below = [&random](std::size_t end) { return random() % end; };
  std::vector<std::uint32_t> posted;
  std::vector<std::uint32_t> polled;  // those without a completion, too
  std::vector<std::uint32_t> last_signaled;
  const auto note = [&](const ibv_wc& wc) {
    const std::size_t pair = wc.wr_id >> 32;
    const auto number = static_cast<std::uint32_t>(wc.wr_id);
    EXPECT_GT(number, polled[pair]) << "queue pair " << pair;
    polled[pair] = number;
  };
  for (int step = 0; step < 20'000; ++step) {
    if (senders_.size() < kMany && step % 100 == 0) {
      add_pair();
      posted.push_back(0);
      polled.push_back(0);
      last_signaled.push_back(0);
    }
    const std::size_t pair = below(senders_.size());
    if (posted[pair] - polled[pair] < 16) {
      const bool is_signaled = posted[pair] - polled[pair] == 15 || below(2) == 0;  // else no room is freed
      ++posted[pair];
      if (is_signaled) last_signaled[pair] = posted[pair];
      write(pair, pair << 32 | posted[pair], is_signaled);
    }
    if (below(4) == 0) {
      for (const ibv_wc& wc : poll(static_cast<int>(below(20)))) note(wc);
    }
  }
  while (polled != last_signaled && !HasFailure()) note(take(1)[0]);
  EXPECT_TRUE(poll(16).empty());
}

TEST_F(ManySenders, ARequestThatWaitsGoesOn) {
  add_pairs(kMany);
  ibv_send_wr wr = send_request(1);
  wr.send_flags = IBV_SEND_SIGNALED;
  Qp& waiting = *senders_.back();
  ASSERT_EQ(waiting.post(wr, from_.slice(0, 8)), 0);  // no receive is posted
  write(0, 2);
  EXPECT_EQ(take(1)[0].wr_id, 2U);
  ASSERT_EQ(receivers_.back()->post_recv(to_.slice(0, 8), 3), 0);
  EXPECT_EQ(take(1)[0].qp_num, waiting.number());
  EXPECT_TRUE(poll(16).empty());
}

TEST_F(ManySenders, ResetAndDestructionDropCompletions) {
  add_pairs(kMany);
  for (std::size_t pair = 0; pair < kMany; ++pair) write(pair, pair);
  ASSERT_EQ(senders_[5]->to_state(IBV_QPS_RESET), 0);
  ASSERT_EQ(receivers_[5]->to_state(IBV_QPS_RESET), 0);
  senders_.back().reset();
  take(kMany - 2);
  connect(5);
  write(5, 55);
  EXPECT_EQ(take(1)[0].wr_id, 55U);
}

TEST_F(ManySenders, NewQueuePairsTakeThePlacesOfOldOnes) {
  add_pairs(kMany);
  for (std::size_t pair = 0; pair < kMany; ++pair) write(pair, pair);
  take(kMany);
  senders_.clear();
  receivers_.clear();
  EXPECT_TRUE(poll(16).empty());
  add_pairs(3);
  write(2, 7);
  EXPECT_EQ(take(1)[0].wr_id, 7U);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
