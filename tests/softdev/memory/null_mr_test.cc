// Null registrations (ibv_alloc_null_mr): they read as zeroes and discard written bytes, at any address.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "softdev/verbs/raw_verbs.h"
#include "softdev/verbs/soft_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

struct NullScene {
  Pair pair;
  Memory local{pair.a_node, 1 << 20};
  Memory remote{pair.b_node, 1 << 20};
  verbs::MrHandle a_null{api(), ibv_alloc_null_mr(pair.a_node.pd.get())};
  verbs::MrHandle b_null{api(), ibv_alloc_null_mr(pair.b_node.pd.get())};

  NullScene() {
    local.fill(1);
    remote.fill(2);
  }
  [[nodiscard]] static bool is_zero(const Memory& memory, std::size_t length) {
    return std::all_of(memory.data, memory.data + length, [](std::byte byte) { return byte == std::byte{0}; });
  }
  void run(ibv_send_wr wr, ibv_sge slice) {
    ASSERT_EQ(pair.a.post(wr, slice), 0);
    EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
  }
};

ibv_sge null_slice(const verbs::MrHandle& mr, std::uint64_t address, std::uint32_t length) {
  return {address, length, mr->lkey};
}

/// Small messages go through slots, and large ones are copied in parts.
constexpr std::uint32_t kSizes[] = {1, 40, 5000, 1 << 20};

TEST(NullMr, IsAsLongAsTheAddressSpace) {
  const NullScene scene;
  EXPECT_EQ(scene.a_null->addr, nullptr);
  EXPECT_EQ(scene.a_null->length, SIZE_MAX);
  EXPECT_NE(scene.a_null->lkey, scene.b_null->lkey);
}

TEST(NullMr, SendsZeroes) {
  NullScene scene;
  for (const std::uint32_t bytes : kSizes) {
    scene.remote.fill(2);
    scene.run(rdma_request(IBV_WR_RDMA_WRITE, 1, scene.remote.address(), scene.remote.mr->rkey),
              null_slice(scene.a_null, 0xdeadbeef, bytes));
    EXPECT_TRUE(NullScene::is_zero(scene.remote, bytes)) << bytes;
    scene.remote.fill(2);
    ASSERT_EQ(scene.pair.b.post_recv(scene.remote.slice(0, bytes), 2), 0);
    scene.run(send_request(3), null_slice(scene.a_null, 0, bytes));
    EXPECT_EQ(scene.pair.b.next().byte_len, bytes);
    EXPECT_TRUE(NullScene::is_zero(scene.remote, bytes)) << bytes;
  }
}

TEST(NullMr, DiscardsTheDataOfAReadAndOfAReceive) {
  NullScene scene;
  for (const std::uint32_t bytes : kSizes) {
    scene.run(rdma_request(IBV_WR_RDMA_READ, 1, scene.remote.address(), scene.remote.mr->rkey),
              null_slice(scene.a_null, 8, bytes));
    // The receive has memory before and behind the discarded part.
    std::memset(scene.remote.data, 0, 64);
    ibv_sge slices[] = {scene.remote.slice(0, 1), null_slice(scene.b_null, ~std::uint64_t{0} - bytes, bytes),
                        scene.remote.slice(1, 1)};
    ASSERT_EQ(scene.pair.b.post_recv(slices, 2), 0);
    const std::uint32_t length = std::min<std::uint32_t>(bytes + 2, 1 << 20);
    scene.run(send_request(3), scene.local.slice(0, length));
    EXPECT_EQ(scene.pair.b.next().byte_len, length);
    EXPECT_EQ(scene.remote.data[0], scene.local.data[0]);
    if (length == bytes + 2) {
      EXPECT_EQ(scene.remote.data[1], scene.local.data[bytes + 1]);
    }
  }
}

TEST(NullMr, AsATarget) {
  NullScene scene;
  for (const std::uint32_t bytes : kSizes) {
    // Twice at different addresses, because the device remembers the target of a WRITE.
    for (const std::uint64_t address : {std::uint64_t{0}, std::uint64_t{1} << 46, std::uint64_t{12345}}) {
      scene.run(rdma_request(IBV_WR_RDMA_WRITE, 1, address, scene.b_null->rkey), scene.local.slice(0, bytes));
    }
    scene.local.fill(1);
    scene.run(rdma_request(IBV_WR_RDMA_READ, 2, 777, scene.b_null->rkey), scene.local.slice(0, bytes));
    EXPECT_TRUE(NullScene::is_zero(scene.local, bytes)) << "nothing that was written is there";
  }
}

TEST(NullMr, HasNoAtomics) {
  NullScene scene;
  ASSERT_EQ(scene.pair.a.post(atomic_request(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, scene.b_null->rkey, 1),
                              scene.local.slice(0, 8)),
            0);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_REM_ACCESS_ERR);
}

TEST(NullMr, ItsKeyEnds) {
  NullScene scene;
  const std::uint32_t key = scene.b_null->rkey;
  EXPECT_EQ(rereg_mr(scene.b_null.get(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  scene.b_null.reset();
  ASSERT_EQ(scene.pair.a.post(rdma_request(IBV_WR_RDMA_WRITE, 1, 0, key), scene.local.slice(0, 8)), 0);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_REM_ACCESS_ERR);
}

TEST(NullMr, ItsDomainCanBeDeallocatedFirst) {
  const Node node;
  ibv_pd* const domain = api().alloc_pd(node.context.get());
  const verbs::MrHandle null(api(), ibv_alloc_null_mr(domain));
  EXPECT_EQ(api().dealloc_pd(domain), 0);
}

TEST(NullMr, OnlyItsDomainMayUseIt) {
  NullScene scene;
  Node other;
  const verbs::MrHandle foreign(api(), ibv_alloc_null_mr(other.pd.get()));
  ASSERT_EQ(scene.pair.a.post(rdma_request(IBV_WR_RDMA_WRITE, 1, scene.remote.address(), scene.remote.mr->rkey),
                              null_slice(foreign, 0, 8)),
            0);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_LOC_PROT_ERR);
}

TEST(NullMr, ALongMessageOfAllBytes) {
  NullScene scene;
  scene.run(rdma_request(IBV_WR_RDMA_WRITE, 1, 0, scene.b_null->rkey), null_slice(scene.a_null, 0, 1U << 30));
}

}  // namespace
}  // namespace rdmacomm::softdev::test
