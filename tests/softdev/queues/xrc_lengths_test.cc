// XRC: messages of all lengths.
#include <arpa/inet.h>

#include <array>
#include <cstring>
#include <string>

#include "softdev/local/two_processes.h"
#include "softdev/queues/xrc_scene.h"
#include "softdev/shared/layout.h"

namespace rdmacomm::softdev::test {
namespace {

/// In memory that peers map, and in the application's own memory.
class XrcSizes : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr std::size_t kMax = (3U << 20) + 5;
  static constexpr std::array<std::size_t, 7> kSizes = {1,   XrcRoute::kEagerBytes + 1, 16384, 16385, 131072, 1U << 20,
                                                        kMax};
  Scene scene;
  Memory source{scene.a, kMax, kAllRemote, GetParam()};
  Memory target{scene.b, kMax, kAllRemote, GetParam()};

  void SetUp() override { source.fill(7); }
  void post(ibv_send_wr wr, ibv_sge slice) {
    ASSERT_EQ(scene.sender.post(to_queue(scene.queue.number(), wr), slice), 0);
  }
  void expect_sent(std::size_t bytes) {
    const ibv_wc wc = scene.sender.next();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << bytes << " bytes";
  }
  void expect_arrived(std::size_t bytes) {
    EXPECT_EQ(std::memcmp(source.data, target.data, bytes), 0) << bytes << " bytes";
    std::memset(target.data, 0, kMax);
  }
};

TEST_P(XrcSizes, Send) {
  for (const std::size_t bytes : kSizes) {
    ASSERT_EQ(scene.queue.post(bytes, target.slice(0, bytes)), 0);
    post(send_request(1), source.slice(0, bytes));
    expect_sent(bytes);
    const ibv_wc wc = scene.queue.next();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.byte_len, bytes);
    expect_arrived(bytes);
  }
}

TEST_P(XrcSizes, WriteWithImmediate) {
  for (const std::size_t bytes : kSizes) {
    ASSERT_EQ(scene.queue.post(bytes, target.slice(0, 0)), 0);
    ibv_send_wr write = rdma_request(IBV_WR_RDMA_WRITE_WITH_IMM, 2, target.address(), target.mr->rkey);
    write.imm_data = htonl(77);
    post(write, source.slice(0, bytes));
    expect_sent(bytes);
    const ibv_wc wc = scene.queue.next();
    EXPECT_EQ(wc.byte_len, bytes);
    EXPECT_EQ(wc.imm_data, htonl(77));
    expect_arrived(bytes);
  }
}

TEST_P(XrcSizes, Read) {
  target.fill(7);
  for (const std::size_t bytes : kSizes) {
    std::memset(source.data, 0, kMax);
    post(rdma_request(IBV_WR_RDMA_READ, 2, target.address(), target.mr->rkey), source.slice(0, bytes));
    expect_sent(bytes);
    EXPECT_EQ(std::memcmp(source.data, target.data, bytes), 0) << bytes << " bytes";
  }
}

/// Many messages at the same time, long and short: each arrives complete and in order.
TEST_P(XrcSizes, InOrder) {
  constexpr std::uint64_t kMessages = 6;
  constexpr std::size_t kLong = 400'000;
  for (std::uint64_t id = 0; id < kMessages; ++id) ASSERT_EQ(scene.queue.post(id, target.slice(id * kLong, kLong)), 0);
  for (std::uint64_t id = 0; id < kMessages; ++id) post(send_request(id), source.slice(id, id % 2 == 0 ? kLong : 8));
  for (std::uint64_t id = 0; id < kMessages; ++id) {
    expect_sent(kLong);
    const ibv_wc wc = scene.queue.next();
    EXPECT_EQ(wc.wr_id, id);
    EXPECT_EQ(wc.byte_len, id % 2 == 0 ? kLong : 8);
    EXPECT_EQ(std::memcmp(source.data + id, target.data + id * kLong, wc.byte_len), 0);
  }
}

/// A message that is refused at its end leaves nothing behind, neither in the queue nor for the next connection.
TEST_P(XrcSizes, TooLongAMessage) {
  ASSERT_EQ(scene.queue.post(1, target.slice(0, kMax - 1)), 0);
  post(send_request(1), source.slice(0, kMax));
  scene.expect_failed(IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
  EXPECT_EQ(scene.queue.next().status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(target.data[0], std::byte{0});
}

TEST_P(XrcSizes, MemoryThatMayNotBeUsed) {
  post(rdma_request(IBV_WR_RDMA_READ, 2, target.address() + 1, target.mr->rkey), source.slice(0, kMax));
  scene.expect_failed(IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
  Scene again;
  const Memory memory(again.b, kMax, kAllRemote, GetParam());
  const Memory from(again.a, kMax, kAllRemote, GetParam());
  const auto write = rdma_request(IBV_WR_RDMA_WRITE, 2, memory.address() + 1, memory.mr->rkey);
  ASSERT_EQ(again.sender.post(to_queue(again.queue.number(), write), from.slice(0, kMax)), 0);
  again.expect_failed(IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
}

std::string kind_of_memory(const ::testing::TestParamInfo<bool>& own) {
  return own.param ? "OfTheApplication" : "OfTheLibrary";
}
INSTANTIATE_TEST_SUITE_P(Memories, XrcSizes, ::testing::Bool(), kind_of_memory);

/// The connection belongs to one process and the queue to another, whose memory is not mapped.
TEST(Xrc, LongMessagesToAnotherProcessesQueue) {
  static constexpr std::size_t kLong = (1U << 20) + 3;
  const UniqueFd file = nameless_file();
  Child owner([&file](Line line) {
    Node node;
    const Domain domain(node, file.get());
    Memory memory(node, 2 * kLong, kAllRemote, true);
    Queue queue(node, domain);
    ASSERT_EQ(queue.post(8, memory.slice(0, kLong)), 0);
    line.send({queue.number(), memory.mr->rkey, memory.address(kLong)});
    const ibv_wc received = queue.next();
    EXPECT_EQ(received.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.byte_len, kLong);
    line.send({received.qp_num, 0, std::memcmp(memory.data, memory.data + kLong, kLong) == 0});
    (void)line.receive();
  });
  const QueueInfo queue = owner.line().receive();
  Node node;
  ibv_xrcd* const xrcd = open_domain(node, file.get(), 0);
  ASSERT_NE(xrcd, nullptr);
  {
    Qp sender(node, of_type(IBV_QPT_XRC_SEND));
    Qp receiver(node, of_type(IBV_QPT_XRC_RECV, xrcd));
    Scene::connect(sender, receiver);
    Memory memory(node, 2 * kLong);
    memory.fill(1);
    const auto done = [&](ibv_send_wr wr, std::size_t offset) {
      ASSERT_EQ(sender.post(to_queue(queue.qpn, wr), memory.slice(offset, kLong)), 0);
      ASSERT_EQ(sender.next().status, IBV_WC_SUCCESS);
    };
    done(rdma_request(IBV_WR_RDMA_WRITE, 1, queue.address, queue.rkey), 0);
    done(rdma_request(IBV_WR_RDMA_READ, 2, queue.address, queue.rkey), kLong);
    EXPECT_EQ(std::memcmp(memory.data + kLong, memory.data, kLong), 0);
    done(send_request(3), 0);
    const QueueInfo received = owner.line().receive();
    EXPECT_EQ(received.qpn, receiver.number());
    EXPECT_EQ(received.address, 1U) << "what was sent is what was written";
    owner.line().send({});
  }
  EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
