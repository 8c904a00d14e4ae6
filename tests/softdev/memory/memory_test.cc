// Registrations that change, and their protection domains.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "softdev/queues/soft_qp.h"
#include "softdev/verbs/raw_verbs.h"
#include "softdev/verbs/soft_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

/// A pair with memory at both ends. The test changes the registration of `b`.
struct MemoryScene {
  Pair pair;
  Memory local{pair.a_node};
  Memory remote{pair.b_node};

  MemoryScene() { local.fill(3); }
  ibv_wc write(std::size_t bytes = 8, std::uint64_t offset = 0) {
    const auto wr = rdma_request(IBV_WR_RDMA_WRITE, 1, remote.address(offset), remote.mr->rkey);
    EXPECT_EQ(pair.a.post(wr, local.slice(0, bytes)), 0);
    return pair.a.next();
  }
};

TEST(Reregistration, KeepsItsKeysAndChangesItsAccess) {
  MemoryScene scene;
  const std::uint32_t key = scene.remote.mr->rkey;
  ASSERT_EQ(rereg_mr(scene.remote.mr.get(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE),
            0);
  EXPECT_EQ(scene.remote.mr->rkey, key);
  EXPECT_EQ(scene.write().status, IBV_WC_SUCCESS);
  ASSERT_EQ(rereg_mr(scene.remote.mr.get(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE),
            0);
  EXPECT_EQ(scene.write().status, IBV_WC_REM_ACCESS_ERR);
}

TEST(Reregistration, ChangesItsRange) {
  MemoryScene scene;
  EXPECT_EQ(scene.write(8, 4088).status, IBV_WC_SUCCESS);
  ASSERT_EQ(rereg_mr(scene.remote.mr.get(), IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, scene.remote.data + 64, 128, 0),
            0);
  EXPECT_EQ(scene.remote.mr->length, 128U);
  EXPECT_EQ(scene.remote.mr->addr, scene.remote.data + 64);
  EXPECT_EQ(scene.write(8, 64).status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(scene.remote.data + 64, scene.local.data, 8), 0);
  EXPECT_EQ(scene.write(8, 0).status, IBV_WC_REM_ACCESS_ERR);
}

TEST(Reregistration, ChangesItsDomain) {
  MemoryScene scene;
  verbs::PdHandle other(api(), api().alloc_pd(scene.pair.b_node.context.get()));
  ASSERT_EQ(rereg_mr(scene.remote.mr.get(), IBV_REREG_MR_CHANGE_PD, other.get(), nullptr, 0, 0), 0);
  EXPECT_EQ(scene.remote.mr->pd, other.get());
  EXPECT_EQ(api().dealloc_pd(other.get()), EBUSY) << "it is in use now";
  ASSERT_EQ(scene.pair.b.post_recv(scene.remote.slice(0, 64), 1), 0);
  ASSERT_EQ(scene.pair.a.post(send_request(2), scene.local.slice(0, 8)), 0);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(scene.pair.b.next().status, IBV_WC_LOC_PROT_ERR);
  scene.remote.mr.reset();
}

TEST(Reregistration, AReceiveThatWasPostedBeforeIsCheckedAgain) {
  MemoryScene scene;
  ASSERT_EQ(scene.pair.b.post_recv(scene.remote.slice(0, 64), 1), 0);
  ASSERT_EQ(rereg_mr(scene.remote.mr.get(), IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, scene.remote.data + 64, 64, 0),
            0);
  ASSERT_EQ(scene.pair.a.post(send_request(2), scene.local.slice(0, 8)), 0);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(scene.pair.b.next().status, IBV_WC_LOC_PROT_ERR);
}

TEST(Reregistration, ARefusedChangeHasNoEffect) {
  MemoryScene scene;
  ibv_mr* const mr = scene.remote.mr.get();
  const auto refused = [&](int flags, ibv_pd* pd, void* address, std::size_t length, int access, int error) {
    errno = 0;
    EXPECT_EQ(rereg_mr(mr, flags, pd, address, length, access), IBV_REREG_MR_ERR_INPUT);
    EXPECT_EQ(errno, error);
  };
  refused(0, nullptr, nullptr, 0, 0, EINVAL);
  refused(1 << 10, nullptr, nullptr, 0, 0, EINVAL);
  refused(IBV_REREG_MR_CHANGE_PD, nullptr, nullptr, 0, 0, EINVAL);
  refused(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, scene.remote.data, 0, 0, EINVAL);
  refused(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, reinterpret_cast<void*>(4096), 4096, 0, EFAULT);
  refused(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE, EINVAL);
  refused(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 1 << 19, EOPNOTSUPP);
  EXPECT_EQ(scene.write(8, 4088).status, IBV_WC_SUCCESS);
}

std::size_t count_mappings() {
  std::ifstream maps("/proc/self/maps");
  return static_cast<std::size_t>(std::count(std::istreambuf_iterator<char>(maps), {}, '\n'));
}

TEST(Registration, ATargetCannotUseUpTheInitiatorsMappings) {
  constexpr int kRegistrations = 17'500;  // of 262,143 places
  MemoryScene scene;
  const std::size_t before = count_mappings();
  for (int i = 0; i < kRegistrations; ++i) {
    scene.remote.mr = {};
    scene.remote.mr =
        verbs::MrHandle(api(), api().reg_mr(scene.pair.b_node.pd.get(), scene.remote.data, 4096, kAllRemote));
    scene.local.data[0] = static_cast<std::byte>(i);
    ASSERT_EQ(scene.write().status, IBV_WC_SUCCESS) << i;
    ASSERT_EQ(scene.remote.data[0], static_cast<std::byte>(i)) << i;
  }
  EXPECT_LE(count_mappings(), before + 16384 + 100);
}

// A WRITE between the same registrations as the previous one uses a fast check. Each test's first WRITE uses the full
// check.

TEST(SecondWrite, MovesItsBytes) {
  MemoryScene scene;
  ASSERT_EQ(scene.write().status, IBV_WC_SUCCESS);
  for (const std::size_t bytes : {1, 7, 8, 64, 255, 256, 257}) {
    const std::size_t at = 100 + bytes;
    std::memset(scene.remote.data, 0, scene.remote.size);
    ASSERT_EQ(scene.write(bytes, at).status, IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(scene.remote.data + at, scene.local.data, bytes), 0) << bytes;
    EXPECT_EQ(scene.remote.data[at - 1], std::byte{0});
    EXPECT_EQ(scene.remote.data[at + bytes], std::byte{0});
  }
  EXPECT_EQ(scene.write(0, 0).status, IBV_WC_SUCCESS);
}

TEST(SecondWrite, StaysInsideItsTarget) {
  for (const std::uint64_t offset : {std::uint64_t{4089}, std::uint64_t{4096}, ~std::uint64_t{0}}) {
    MemoryScene scene;
    EXPECT_EQ(scene.write(8, 4088).status, IBV_WC_SUCCESS);
    EXPECT_EQ(scene.write(8, offset).status, IBV_WC_REM_ACCESS_ERR) << offset;
  }
}

TEST(SecondWrite, StaysInsideItsOwnRegistration) {
  for (const std::size_t offset : {std::size_t{4089}, std::size_t{4096}, ~std::size_t{0}}) {
    MemoryScene scene;
    ASSERT_EQ(scene.write().status, IBV_WC_SUCCESS);
    const auto wr = rdma_request(IBV_WR_RDMA_WRITE, 1, scene.remote.address(), scene.remote.mr->rkey);
    ASSERT_EQ(scene.pair.a.post(wr, scene.local.slice(offset, 8)), 0);
    EXPECT_EQ(scene.pair.a.next().status, IBV_WC_LOC_PROT_ERR) << offset;
  }
}

TEST(SecondWrite, ChecksBothKeys) {
  MemoryScene scene;
  ASSERT_EQ(scene.write().status, IBV_WC_SUCCESS);
  auto wr = rdma_request(IBV_WR_RDMA_WRITE, 1, scene.remote.address(), scene.remote.mr->rkey);
  ibv_sge slice = scene.local.slice(0, 8);
  ++slice.lkey;
  ASSERT_EQ(scene.pair.a.post(wr, slice), 0);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_LOC_PROT_ERR);
  MemoryScene other;
  ASSERT_EQ(other.write().status, IBV_WC_SUCCESS);
  wr = rdma_request(IBV_WR_RDMA_WRITE, 1, other.remote.address(), other.remote.mr->rkey + 1);
  ASSERT_EQ(other.pair.a.post(wr, other.local.slice(0, 8)), 0);
  EXPECT_EQ(other.pair.a.next().status, IBV_WC_REM_ACCESS_ERR);
}

TEST(SecondWrite, NoticesThatItsTargetHasEnded) {
  MemoryScene scene;
  const std::uint32_t key = scene.remote.mr->rkey;
  ASSERT_EQ(scene.write().status, IBV_WC_SUCCESS);
  scene.remote.mr.reset();
  ASSERT_EQ(scene.pair.a.post(rdma_request(IBV_WR_RDMA_WRITE, 1, scene.remote.address(), key), scene.local.slice(0, 8)),
            0);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_REM_ACCESS_ERR);
}

TEST(SecondWrite, NoticesThatItsTargetWasReplaced) {
  MemoryScene scene;
  ASSERT_EQ(scene.write().status, IBV_WC_SUCCESS);
  ASSERT_EQ(scene.write().status, IBV_WC_SUCCESS);
  ASSERT_EQ(rereg_mr(scene.remote.mr.get(), IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, scene.remote.data + 64, 128, 0),
            0);
  EXPECT_EQ(scene.write().status, IBV_WC_REM_ACCESS_ERR);
}

TEST(SecondWrite, NoticesThatItsOwnRegistrationHasEnded) {
  MemoryScene scene;
  const ibv_sge slice = scene.local.slice(0, 8);
  ASSERT_EQ(scene.write().status, IBV_WC_SUCCESS);
  scene.local.mr.reset();
  const auto wr = rdma_request(IBV_WR_RDMA_WRITE, 1, scene.remote.address(), scene.remote.mr->rkey);
  ASSERT_EQ(scene.pair.a.post(wr, slice), 0);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_LOC_PROT_ERR);
}

TEST(SecondWrite, NoticesThatItsOwnRegistrationWasReplaced) {
  MemoryScene scene;
  ASSERT_EQ(scene.write().status, IBV_WC_SUCCESS);
  ASSERT_EQ(rereg_mr(scene.local.mr.get(), IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, scene.local.data + 64, 128, 0), 0);
  EXPECT_EQ(scene.write().status, IBV_WC_LOC_PROT_ERR);
}

TEST(SecondWrite, NoticesThatTheQueuePairAcceptsNoWrites) {
  MemoryScene scene;
  ASSERT_EQ(scene.write().status, IBV_WC_SUCCESS);
  ibv_qp_attr attributes{};
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  ASSERT_EQ(api().modify_qp(scene.pair.b.qp.get(), &attributes, IBV_QP_ACCESS_FLAGS), 0);
  EXPECT_EQ(scene.write().status, IBV_WC_REM_INV_REQ_ERR);
}

TEST(SecondWrite, NoticesThatTheQueuePairIsDown) {
  MemoryScene scene;
  ASSERT_EQ(scene.write().status, IBV_WC_SUCCESS);
  ASSERT_EQ(scene.pair.b.to_state(IBV_QPS_ERR), 0);
  EXPECT_EQ(scene.write().status, IBV_WC_RETRY_EXC_ERR);
}

TEST(SecondWrite, BlocksNothingAfterwards) {
  MemoryScene scene;
  for (int i = 0; i < 3; ++i) ASSERT_EQ(scene.write().status, IBV_WC_SUCCESS);
  EXPECT_FALSE(SoftQp::from(scene.pair.b.qp.get()).initiators().is_busy());
}

TEST(ParentDomain, StandsForItsDomain) {
  Node node;
  ibv_td_init_attr none{};
  ibv_td* const threads = ibv_alloc_td(node.context.get(), &none);
  ASSERT_NE(threads, nullptr);
  ibv_parent_domain_init_attr attributes{};
  attributes.pd = node.pd.get();
  attributes.td = threads;
  ibv_pd* const parent = ibv_alloc_parent_domain(node.context.get(), &attributes);
  ASSERT_NE(parent, nullptr);
  EXPECT_EQ(api().dealloc_pd(node.pd.get()), EBUSY);
  EXPECT_EQ(ibv_dealloc_td(threads), EBUSY);

  Memory memory(node);
  memory.fill(1);
  Qp loop(node);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = loop.cq.get();
  init.qp_type = IBV_QPT_RC;
  init.cap = {4, 4, 1, 1, 0};
  init.sq_sig_all = 1;
  loop.qp = verbs::QpHandle(api(), api().create_qp(parent, &init));
  EXPECT_EQ(api().dealloc_pd(parent), EBUSY);
  loop.connect_to(loop.number());
  const auto wr = rdma_request(IBV_WR_RDMA_WRITE, 1, memory.address(64), memory.mr->rkey);
  ASSERT_EQ(loop.post(wr, memory.slice(0, 8)), 0);
  EXPECT_EQ(loop.next().status, IBV_WC_SUCCESS) << "its registrations are the domain's";
  loop.qp.reset();
  EXPECT_EQ(api().dealloc_pd(parent), 0);
  EXPECT_EQ(ibv_dealloc_td(threads), 0);
}

TEST(ParentDomain, ACompletionQueueThatUsesItKeepsIt) {
  Node node;
  ibv_parent_domain_init_attr attributes{};
  attributes.pd = node.pd.get();
  ibv_pd* const parent = ibv_alloc_parent_domain(node.context.get(), &attributes);
  ASSERT_NE(parent, nullptr);
  ibv_cq_init_attr_ex init{};
  init.cqe = 16;
  init.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  init.parent_domain = node.pd.get();
  EXPECT_EQ(ibv_create_cq_ex(node.context.get(), &init), nullptr) << "not a parent domain";
  EXPECT_EQ(errno, EINVAL);
  init.parent_domain = parent;
  ibv_cq_ex* const cq = ibv_create_cq_ex(node.context.get(), &init);
  ASSERT_NE(cq, nullptr);
  EXPECT_EQ(api().dealloc_pd(parent), EBUSY);
  EXPECT_EQ(api().destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
  EXPECT_EQ(api().dealloc_pd(parent), 0);
}

TEST(Registration, IgnoresOptionalAccessBits) {
  Node node;
  Memory memory(node, 4096, kAllRemote | IBV_ACCESS_RELAXED_ORDERING | 1 << 29);
  EXPECT_NE(memory.mr.get(), nullptr);
  EXPECT_EQ(api().reg_mr(node.pd.get(), memory.data, 4096, kAllRemote | 1 << 19), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(api().reg_mr(node.pd.get(), memory.data, 4096, IBV_ACCESS_HUGETLB), nullptr);
  EXPECT_EQ(errno, EINVAL) << "huge pages are a hint for on-demand paging";
}

TEST(ParentDomain, MayHaveAllocators) {
  Node node;
  ibv_parent_domain_init_attr attributes{};
  EXPECT_EQ(ibv_alloc_parent_domain(node.context.get(), &attributes), nullptr);
  EXPECT_EQ(errno, EINVAL);
  attributes.pd = node.pd.get();
  attributes.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
  ibv_pd* const parent = ibv_alloc_parent_domain(node.context.get(), &attributes);
  ASSERT_NE(parent, nullptr);
  EXPECT_EQ(api().dealloc_pd(parent), 0);
  attributes.comp_mask = 1 << 3;
  EXPECT_EQ(ibv_alloc_parent_domain(node.context.get(), &attributes), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
