// Each verb of soft0, with its data compared byte by byte, through mapped memory and through system calls.
#include <map>
#include <memory>

#include "rdmacomm/deadline.h"
#include "softdev/host/soft_device.h"
#include "softdev/verbs/raw_verbs.h"
#include "softdev/verbs/soft_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

constexpr std::size_t kSizes[] = {0, 1, 7, 8, 9, 47, 48, 49, 64, 255, 4096, 65537, 1 << 20};

/// For each end, whether its memory belongs to the application.
struct Kinds {
  bool local;
  bool remote;
};

class EachKindOfMemory : public ::testing::TestWithParam<Kinds> {
 protected:
  static constexpr std::size_t kBytes = 2 << 20;
  Pair pair;
  Memory local{pair.a_node, kBytes, kAllRemote, GetParam().local};
  Memory remote{pair.b_node, kBytes, kAllRemote, GetParam().remote};

  void expect_equal(std::size_t bytes, std::size_t local_at, std::size_t remote_at) const {
    EXPECT_EQ(std::memcmp(local.data + local_at, remote.data + remote_at, bytes), 0) << bytes << " bytes";
  }
};

TEST_P(EachKindOfMemory, SendFillsThePostedReceiveAndNothingElse) {
  for (const std::size_t size : kSizes) {
    local.fill(static_cast<unsigned>(size) + 1);
    std::memset(remote.data, 0xee, kBytes);
    ASSERT_EQ(pair.b.post_recv(remote.slice(64, size + 8), size), 0);
    ASSERT_EQ(pair.a.post(send_request(7), local.slice(32, size)), 0);
    const ibv_wc sent = pair.a.next();
    EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
    EXPECT_EQ(sent.opcode, IBV_WC_SEND);
    EXPECT_EQ(sent.wr_id, 7U);
    const ibv_wc received = pair.b.next();
    EXPECT_EQ(received.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.opcode, IBV_WC_RECV);
    EXPECT_EQ(received.wr_id, size);
    EXPECT_EQ(received.byte_len, size);
    EXPECT_EQ(received.qp_num, pair.b.number());
    EXPECT_EQ(received.src_qp, pair.a.number());
    EXPECT_EQ(received.wc_flags & IBV_WC_WITH_IMM, 0U);
    expect_equal(size, 32, 64);
    EXPECT_EQ(remote.data[63], std::byte{0xee});
    EXPECT_EQ(remote.data[64 + size], std::byte{0xee});
  }
}

TEST_P(EachKindOfMemory, WriteAndReadMoveEachSizeToEachAlignment) {
  for (const std::size_t size : kSizes) {
    for (const std::size_t shift : {0U, 1U, 4U, 7U}) {
      local.fill(static_cast<unsigned>(size + shift));
      std::memset(remote.data, 0xee, kBytes);
      auto write = rdma_request(IBV_WR_RDMA_WRITE, 1, remote.address(64 + shift), remote.mr->rkey);
      ASSERT_EQ(pair.a.post(write, local.slice(shift * 2, size)), 0);
      EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
      expect_equal(size, shift * 2, 64 + shift);
      EXPECT_EQ(remote.data[63 + shift], std::byte{0xee});
      EXPECT_EQ(remote.data[64 + shift + size], std::byte{0xee});

      std::memset(local.data, 0, kBytes);
      auto read = rdma_request(IBV_WR_RDMA_READ, 2, remote.address(64 + shift), remote.mr->rkey);
      ASSERT_EQ(pair.a.post(read, local.slice(shift, size)), 0);
      const ibv_wc done = pair.a.next();
      EXPECT_EQ(done.status, IBV_WC_SUCCESS);
      EXPECT_EQ(done.opcode, IBV_WC_RDMA_READ);
      expect_equal(size, shift, 64 + shift);
      EXPECT_EQ(local.data[shift + size], std::byte{0});
    }
  }
  EXPECT_TRUE(pair.b.poll().empty()) << "the target is told of neither";
}

TEST_P(EachKindOfMemory, WriteWithImmediateConsumesAReceive) {
  local.fill(3);
  ASSERT_EQ(pair.b.post_recv(std::span<ibv_sge>(), 11), 0);
  auto write = rdma_request(IBV_WR_RDMA_WRITE_WITH_IMM, 5, remote.address(), remote.mr->rkey);
  write.imm_data = htonl(0xabcd1234);
  ASSERT_EQ(pair.a.post(write, local.slice(0, 3000)), 0);
  EXPECT_EQ(pair.a.next().opcode, IBV_WC_RDMA_WRITE);
  const ibv_wc received = pair.b.next();
  EXPECT_EQ(received.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(received.wr_id, 11U);
  EXPECT_EQ(received.byte_len, 3000U);
  EXPECT_EQ(ntohl(received.imm_data), 0xabcd1234);
  EXPECT_NE(received.wc_flags & IBV_WC_WITH_IMM, 0U);
  expect_equal(3000, 0, 0);
}

TEST_P(EachKindOfMemory, AtomicsChangeTheTargetAndReturnTheOldValue) {
  auto* const target = reinterpret_cast<std::uint64_t*>(remote.data + 64);
  const auto* const result = reinterpret_cast<std::uint64_t*>(local.data);
  *target = 40;
  auto add = atomic_request(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, remote.address(64), remote.mr->rkey, 2);
  ASSERT_EQ(pair.a.post(add, local.slice(0, 8)), 0);
  EXPECT_EQ(pair.a.next().opcode, IBV_WC_FETCH_ADD);
  EXPECT_EQ(*result, 40U);
  EXPECT_EQ(*target, 42U);
  auto swap = atomic_request(IBV_WR_ATOMIC_CMP_AND_SWP, 2, remote.address(64), remote.mr->rkey, 42, 7);
  ASSERT_EQ(pair.a.post(swap, local.slice(0, 8)), 0);
  EXPECT_EQ(pair.a.next().opcode, IBV_WC_COMP_SWAP);
  EXPECT_EQ(*result, 42U);
  EXPECT_EQ(*target, 7U);
  ASSERT_EQ(pair.a.post(swap, local.slice(0, 8)), 0);  // does not match any more
  EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(*result, 7U);
  EXPECT_EQ(*target, 7U);
}

TEST_P(EachKindOfMemory, GatherAndScatterListsKeepTheOrderOfBytes) {
  local.fill(9);
  std::array<ibv_sge, 4> from = {local.slice(0, 10), local.slice(100, 0), local.slice(200, 3000), local.slice(50, 1)};
  std::array<ibv_sge, 3> to = {remote.slice(0, 5), remote.slice(1000, 2000), remote.slice(5000, 4000)};
  ASSERT_EQ(pair.b.post_recv(to, 1), 0);
  ASSERT_EQ(pair.a.post(send_request(1), from), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.b.next().byte_len, 3011U);
  std::vector<std::byte> sent;
  for (const ibv_sge& s : from) {
    const auto* p = reinterpret_cast<const std::byte*>(s.addr);
    sent.insert(sent.end(), p, p + s.length);
  }
  std::vector<std::byte> got(remote.data, remote.data + 5);
  got.insert(got.end(), remote.data + 1000, remote.data + 3000);
  got.insert(got.end(), remote.data + 5000, remote.data + 5000 + 1006);
  EXPECT_EQ(sent, got);
}

INSTANTIATE_TEST_SUITE_P(, EachKindOfMemory,
                         ::testing::Values(Kinds{false, false}, Kinds{true, false}, Kinds{false, true},
                                           Kinds{true, true}),
                         [](const auto& kinds) {
                           return std::string(kinds.param.local ? "own" : "shared") + "_to_" +
                                  (kinds.param.remote ? "own" : "shared");
                         });

TEST(Verbs, SendWithImmediateArrivesInOrder) {
  Pair pair;
  Memory local(pair.a_node);
  Memory remote(pair.b_node);
  for (std::uint64_t i = 0; i < 16; ++i) ASSERT_EQ(pair.b.post_recv(remote.slice(i * 64, 64), i), 0);
  for (std::uint32_t i = 0; i < 16; ++i) {
    auto wr = send_request(i);
    wr.opcode = IBV_WR_SEND_WITH_IMM;
    wr.imm_data = htonl(i * 3);
    ASSERT_EQ(pair.a.post(wr, local.slice(0, i)), 0);
  }
  for (std::uint32_t i = 0; i < 16; ++i) {
    const ibv_wc wc = pair.b.next();
    EXPECT_EQ(wc.wr_id, i);
    EXPECT_EQ(ntohl(wc.imm_data), i * 3);
    EXPECT_EQ(wc.byte_len, i);
  }
}

TEST(Verbs, QueuesWrapAroundManyTimes) {
  QpSettings small;
  small.depth = 3;  // not a power of two
  Pair pair(small, small);
  Memory local(pair.a_node);
  Memory remote(pair.b_node);
  for (std::uint64_t i = 0; i < 5000; ++i) {
    ASSERT_EQ(pair.b.post_recv(remote.slice(0, 8), i), 0);
    std::memcpy(local.data, &i, sizeof(i));
    ASSERT_EQ(pair.a.post(send_request(i), local.slice(0, 8)), 0);
    ASSERT_EQ(pair.a.next().wr_id, i);
    ASSERT_EQ(pair.b.next().wr_id, i);
    ASSERT_EQ(std::memcmp(remote.data, &i, sizeof(i)), 0);
  }
}

TEST(Verbs, InlinePayloadIsTakenWhenPosted) {
  QpSettings settings;
  Pair pair(settings, settings);
  Memory remote(pair.b_node);
  std::array<char, 64> payload{};  // not registered: inline data needs no lkey
  std::memset(payload.data(), 'x', payload.size());
  auto wr = send_request(1);
  wr.send_flags = IBV_SEND_INLINE;
  const ibv_sge slice{reinterpret_cast<std::uint64_t>(payload.data()), 64, 0};
  ASSERT_EQ(pair.a.post(wr, slice), 0);  // no receive is posted: the request waits
  std::memset(payload.data(), 'y', payload.size());
  ASSERT_EQ(pair.b.post_recv(remote.slice(0, 64), 1), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.b.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(remote.data[0], std::byte{'x'});
  EXPECT_EQ(remote.data[63], std::byte{'x'});
  const ibv_sge too_long{reinterpret_cast<std::uint64_t>(payload.data()), 65, 0};
  EXPECT_EQ(pair.a.post(wr, too_long), EINVAL);
}

TEST(Verbs, AQueuePairConnectsToItself) {
  Node node;
  Qp qp(node);
  qp.connect_to(qp.number());
  Memory memory(node);
  memory.fill(1);
  ASSERT_EQ(qp.post_recv(memory.slice(2048, 1000), 5), 0);
  ASSERT_EQ(qp.post(send_request(6), memory.slice(0, 1000)), 0);
  EXPECT_EQ(qp.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(qp.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(memory.data, memory.data + 2048, 1000), 0);
}

TEST(Verbs, QueuePairsLeaveASharedCompletionQueueWhileItIsPolled) {
  Node node;
  verbs::CqHandle cq(api(), api().create_cq(node.context.get(), 256, nullptr, nullptr, 0));
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq.get();
  init.qp_type = IBV_QPT_RC;
  init.cap = {4, 4, 1, 1, 0};
  std::vector<verbs::QpHandle> queue_pairs;
  for (int i = 0; i < 8; ++i) queue_pairs.emplace_back(api(), api().create_qp(node.pd.get(), &init));
  ibv_wc wc{};
  for (int i = 0; i < 13; ++i) EXPECT_EQ(ibv_poll_cq(cq.get(), 1, &wc), 0);
  while (!queue_pairs.empty()) {
    queue_pairs.pop_back();
    EXPECT_EQ(ibv_poll_cq(cq.get(), 1, &wc), 0);
  }
}

TEST(Verbs, BusyQueuePairsOfASharedCompletionQueueAreServedFairly) {
  constexpr std::size_t kQueuePairs = 12;
  const auto is_busy = [](std::size_t i) { return i == 5 || i == 6 || i == 11; };
  Node node;
  const Memory memory(node);
  const verbs::CqHandle cq(api(), api().create_cq(node.context.get(), 1024, nullptr, nullptr, 0));
  std::vector<std::unique_ptr<Qp>> queue_pairs;
  std::map<std::uint32_t, std::pair<Qp*, int>> by_number;
  const auto write = [&](Qp& qp) {
    return qp.post(rdma_request(IBV_WR_RDMA_WRITE, 1, memory.address(), memory.mr->rkey), std::span<ibv_sge>());
  };
  for (std::size_t i = 0; i < kQueuePairs; ++i) {
    Qp& qp = *queue_pairs.emplace_back(std::make_unique<Qp>(node, QpSettings{.shared_cq = cq.get()}));
    qp.connect_to(qp.number());
    if (!is_busy(i)) continue;
    by_number[qp.number()] = {&qp, 0};
    for (int n = 0; n < 8; ++n) ASSERT_EQ(write(qp), 0);
  }
  std::array<ibv_wc, 8> found{};
  // By TCP, completions arrive in bursts. Over many of them the shares become equal, however slow the machine is.
  constexpr int kEnough = 1500;
  const auto deadline = rdmacomm::Deadline::after(std::chrono::seconds(60));
  for (int all = 0; all < kEnough && !deadline.passed();) {
    const int count = ibv_poll_cq(cq.get(), static_cast<int>(found.size()), found.data());
    ASSERT_GE(count, 0);
    all += count;
    for (int n = 0; n < count; ++n) {
      auto& [qp, seen] = by_number.at(found[static_cast<std::size_t>(n)].qp_num);
      ++seen;
      ASSERT_EQ(write(*qp), 0);
    }
  }
  int all = 0;
  for (const auto& [number, entry] : by_number) all += entry.second;
  EXPECT_GE(all, kEnough);
  for (const auto& [number, entry] : by_number) EXPECT_GE(entry.second, all / 4) << "of " << all;
}

TEST(Verbs, AllocatedMemoryIsZeroedAndReused) {
  Node node;
  void* const first = api().allocate_memory(node.context.get(), 1 << 20, false);
  ASSERT_NE(first, nullptr);
  std::memset(first, 0xff, 1 << 20);
  api().free_memory(node.context.get(), first, 1 << 20, false);
  auto* const second = static_cast<std::byte*>(api().allocate_memory(node.context.get(), 1 << 20, false));
  ASSERT_NE(second, nullptr);
  EXPECT_TRUE(std::all_of(second, second + (1 << 20), [](std::byte b) { return b == std::byte{0}; }));
  api().free_memory(node.context.get(), second, 1 << 20, false);
}

TEST(DeviceList, HasTheSameDevicesAsLongAsTheyAreUsed) {
  const DeviceIdentity identities[] = {{.name = "soft0"}, {.name = "soft1", .index = 1}};
  ibv_device** const one = list_devices(identities);
  ibv_device** const two = list_devices(identities);
  ibv_device* const device = one[1];
  EXPECT_EQ(two[0], one[0]);
  EXPECT_EQ(two[1], device);
  EXPECT_NE(one[0], device);
  const verbs::ContextHandle context(api(), api().open_device(device));
  free_device_list(one);
  free_device_list(two);
  ibv_device** const three = list_devices(identities);
  EXPECT_EQ(three[1], device);
  free_device_list(three);
  // Its link layer belongs to its identity.
  const DeviceIdentity other{.name = "soft1", .index = 1, .infiniband = true};
  ibv_device** const four = list_devices({&other, 1});
  EXPECT_NE(four[0], device);
  free_device_list(four);
}

TEST(DeviceAttributes, TheExtendedFlagsRepeatTheOthers) {
  Node node;
  ibv_device_attr_ex attributes{};
  ASSERT_EQ(api().query_device_ex(node.context.get(), &attributes), 0);
  EXPECT_EQ(attributes.device_cap_flags_ex & 0xffffffff, attributes.orig_attr.device_cap_flags);
  EXPECT_NE(attributes.device_cap_flags_ex, 0U);
}

TEST(Verbs, CountersForFlowsAreRefused) {
  const Node node;
  ibv_counters_init_attr attributes{};
  errno = 0;
  EXPECT_EQ(ibv_create_counters(node.context.get(), &attributes), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
