// On-demand paging: registrations whose pages are loaded when requests use them.
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "softdev/common/newer_numbers.h"
#include "softdev/memory/page_faults.h"
#include "softdev/verbs/raw_verbs.h"
#include "softdev/verbs/soft_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

constexpr std::size_t kBytes = 1 << 16;
constexpr int kOnDemand = kAllRemote | IBV_ACCESS_ON_DEMAND;

/// Address space of which the test decides what is mapped.
class Space {
 public:
  Space() { map(); }
  ~Space() { munmap(data_, kBytes); }
  Space(const Space&) = delete;
  Space& operator=(const Space&) = delete;

  void map() {
    const int fixed = data_ == nullptr ? 0 : MAP_FIXED;
    data_ = static_cast<std::byte*>(
        mmap(data_, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0));
    ASSERT_NE(data_, MAP_FAILED);
  }
  /// No other mapping can take its place.
  void unmap() { ASSERT_EQ(mprotect(data_, kBytes, PROT_NONE), 0); }
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(data_); }

 private:
  std::byte* data_ = nullptr;
};

class OnDemand : public ::testing::Test {
 protected:
  Pair pair;
  Memory local{pair.a_node, kBytes};
  Space space;
  verbs::MrHandle mr{api(), api().reg_mr(pair.b_node.pd.get(), space.data(), kBytes, kOnDemand)};

  static ibv_send_wr request(ibv_wr_opcode opcode, std::uint64_t address, std::uint32_t key) {
    const bool atomic = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    return atomic ? atomic_request(opcode, 1, address, key, 1, 0) : rdma_request(opcode, 1, address, key);
  }
  ibv_wc_status run(ibv_wr_opcode opcode, std::size_t bytes = 8) {
    EXPECT_EQ(pair.a.post(request(opcode, space.address(), mr->rkey), local.slice(0, bytes)), 0);
    return pair.a.next().status;
  }
};

TEST_F(OnDemand, TheDeviceReportsItForAllTransports) {
  ibv_device_attr_ex attributes{};
  ASSERT_EQ(api().query_device_ex(pair.a_node.context.get(), &attributes), 0);
  EXPECT_EQ(attributes.odp_caps.general_caps, IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT);
  const auto& transports = attributes.odp_caps.per_transport_caps;
  EXPECT_EQ(transports.rc_odp_caps & IBV_ODP_SUPPORT_ATOMIC, static_cast<unsigned>(IBV_ODP_SUPPORT_ATOMIC));
  EXPECT_EQ(transports.ud_odp_caps, static_cast<unsigned>(IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV));
  EXPECT_EQ(attributes.xrc_odp_caps | kPagedFlush | kPagedAtomicWrite, transports.rc_odp_caps);
}

TEST_F(OnDemand, MemoryMayBeUnmappedWhenItIsRegistered) {
  space.unmap();
  EXPECT_EQ(api().reg_mr(pair.b_node.pd.get(), space.data(), kBytes, kAllRemote), nullptr);
  EXPECT_EQ(errno, EFAULT);
  const verbs::MrHandle later(api(), api().reg_mr(pair.b_node.pd.get(), space.data(), kBytes, kOnDemand));
  EXPECT_NE(later.get(), nullptr);
}

TEST_F(OnDemand, RequestsReachTheMemoryThatIsMappedNow) {
  space.unmap();
  space.map();
  local.fill(1);
  EXPECT_EQ(run(IBV_WR_RDMA_WRITE, kBytes), IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(space.data(), local.data, kBytes), 0);
  std::memset(local.data, 0, kBytes);
  EXPECT_EQ(run(IBV_WR_RDMA_READ, kBytes), IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(space.data(), local.data, kBytes), 0);
  EXPECT_EQ(run(IBV_WR_ATOMIC_FETCH_AND_ADD), IBV_WC_SUCCESS);
}

TEST_F(OnDemand, ARequestToUnmappedMemoryFailsAndTheTargetLives) {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    SCOPED_TRACE(opcode);
    Pair fresh;
    Memory own(fresh.a_node, kBytes);
    space.map();
    const verbs::MrHandle there(api(), api().reg_mr(fresh.b_node.pd.get(), space.data(), kBytes, kOnDemand));
    space.unmap();
    ASSERT_EQ(fresh.a.post(request(opcode, space.address(), there->rkey), own.slice(0, 8)), 0);
    EXPECT_EQ(fresh.a.next().status, IBV_WC_REM_OP_ERR);
  }
}

TEST_F(OnDemand, AnUnmappedSliceOfASendFailsLocally) {
  Space own;
  const verbs::MrHandle there(api(), api().reg_mr(pair.a_node.pd.get(), own.data(), kBytes, kOnDemand));
  own.unmap();
  ASSERT_EQ(pair.a.post(send_request(1), ibv_sge{own.address(), 64, there->lkey}), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(OnDemand, ShortAndLongMessagesArriveInReceives) {
  for (const std::size_t bytes : {std::size_t{16}, kBytes}) {
    SCOPED_TRACE(bytes);
    local.fill(static_cast<unsigned>(bytes));
    ASSERT_EQ(pair.b.post_recv(ibv_sge{space.address(), kBytes, mr->lkey}, 2), 0);
    ASSERT_EQ(pair.a.post(send_request(1), local.slice(0, bytes)), 0);
    EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
    EXPECT_EQ(pair.b.next().status, IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(space.data(), local.data, bytes), 0);
  }
}

TEST_F(OnDemand, OneRegistrationCoversTheWholeAddressSpace) {
  const verbs::MrHandle all(api(), api().reg_mr(pair.b_node.pd.get(), nullptr, SIZE_MAX, kOnDemand));
  ASSERT_NE(all.get(), nullptr);
  local.fill(5);
  ASSERT_EQ(pair.a.post(rdma_request(IBV_WR_RDMA_WRITE, 1, space.address(), all->rkey), local.slice(0, 4096)), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(space.data(), local.data, 4096), 0);
  // Page 0 is never mapped.
  ASSERT_EQ(pair.a.post(rdma_request(IBV_WR_RDMA_READ, 1, 16, all->rkey), local.slice(0, 8)), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(api().reg_mr(pair.b_node.pd.get(), nullptr, SIZE_MAX, kAllRemote), nullptr);
}

TEST_F(OnDemand, AdviceLoadsThePagesOfARange) {
  ibv_pd* const pd = pair.b_node.pd.get();
  const auto advise = [&](ibv_advise_mr_advice advice, ibv_sge slice, std::uint32_t flags = IBV_ADVISE_MR_FLAG_FLUSH) {
    return ibv_advise_mr(pd, advice, flags, &slice, 1);
  };
  const ibv_sge whole{space.address(), kBytes, mr->lkey};
  unsigned char present = 0;
  ASSERT_EQ(mincore(space.data(), 1, &present), 0);
  EXPECT_EQ(present & 1, 0);
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, whole), 0);
  ASSERT_EQ(mincore(space.data(), 1, &present), 0);
  EXPECT_EQ(present & 1, 1);
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, whole, 0), 0);

  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, {whole.addr + 1, kBytes, mr->lkey}), ENOENT);
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, {whole.addr, 8, mr->lkey + 1}), ENOENT);
  EXPECT_EQ(advise(static_cast<ibv_advise_mr_advice>(3), whole), EOPNOTSUPP);
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, whole, 2), EINVAL);
  Memory pinned(pair.b_node);
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, pinned.slice(0, 8)), EINVAL);
  const verbs::MrHandle read_only(api(), api().reg_mr(pd, space.data(), kBytes, IBV_ACCESS_ON_DEMAND));
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, {whole.addr, 8, read_only->lkey}), EPERM);
  space.unmap();
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, whole), EFAULT);
}

TEST(GuardedCopies, FailInsteadOfASignal) {
  Space space;
  std::byte bytes[16]{std::byte{7}};
  EXPECT_TRUE(write_guarded(space.data(), bytes));
  EXPECT_EQ(space.data()[0], std::byte{7});
  std::byte back[16]{};
  EXPECT_TRUE(read_guarded(back, space.data()));
  EXPECT_EQ(back[0], std::byte{7});
  space.unmap();
  EXPECT_FALSE(write_guarded(space.data(), bytes));
  EXPECT_FALSE(read_guarded(back, space.data()));
  EXPECT_EQ(load_pages(space.data(), 1, false), EFAULT);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
