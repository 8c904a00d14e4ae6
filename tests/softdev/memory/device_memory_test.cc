// Device memory: ibv_alloc_dm, copies to and from it, and its registrations.
#include <cerrno>
#include <cstring>

#include "softdev/common/device_limits.h"
#include "softdev/verbs/raw_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

constexpr std::size_t kDeviceBytes = 8192;
constexpr unsigned kAccess = static_cast<unsigned>(kAllRemote | IBV_ACCESS_ZERO_BASED);

class DeviceMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    ibv_alloc_dm_attr attributes{};
    attributes.length = kDeviceBytes;
    dm = ibv_alloc_dm(pair.b_node.context.get(), &attributes);
    ASSERT_NE(dm, nullptr);
  }
  void TearDown() override { EXPECT_EQ(ibv_free_dm(dm), 0); }

  Pair pair;
  Memory local{pair.a_node, kDeviceBytes};
  ibv_dm* dm = nullptr;
};

TEST_F(DeviceMemory, CopiesStayInside) {
  local.fill(1);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 0, local.data, kDeviceBytes), 0);
  std::byte back[16]{};
  EXPECT_EQ(ibv_memcpy_from_dm(back, dm, kDeviceBytes - 16, 16), 0);
  EXPECT_EQ(std::memcmp(back, local.data + kDeviceBytes - 16, 16), 0);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, kDeviceBytes - 12, back, 16), EFAULT);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 1, back, 4), EFAULT) << "not a multiple of 4";
  EXPECT_EQ(ibv_memcpy_from_dm(back, dm, 4, 3), EFAULT);
  EXPECT_EQ(ibv_memcpy_from_dm(back, dm, UINT64_MAX - 3, 16), EFAULT);
}

TEST_F(DeviceMemory, PeersUseAPartOfItFromAddressZero) {
  const verbs::MrHandle mr(api(), ibv_reg_dm_mr(pair.b_node.pd.get(), dm, 4096, 4096, kAccess));
  ASSERT_NE(mr.get(), nullptr);
  EXPECT_EQ(ibv_free_dm(dm), EBUSY);
  local.fill(2);
  ASSERT_EQ(pair.a.post(rdma_request(IBV_WR_RDMA_WRITE, 1, 8, mr->rkey), local.slice(0, 4088)), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
  std::byte back[4088]{};
  ASSERT_EQ(ibv_memcpy_from_dm(back, dm, 4104, sizeof(back)), 0);
  EXPECT_EQ(std::memcmp(back, local.data, sizeof(back)), 0);
  ASSERT_EQ(pair.a.post(rdma_request(IBV_WR_RDMA_WRITE, 1, 16, mr->rkey), local.slice(0, 4088)), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(DeviceMemory, ARegistrationMayBeEmpty) {
  const verbs::MrHandle mr(api(), ibv_reg_dm_mr(pair.b_node.pd.get(), dm, 0, 0, kAccess));
  ASSERT_NE(mr.get(), nullptr);
  ASSERT_EQ(pair.a.post(rdma_request(IBV_WR_RDMA_WRITE, 1, 0, mr->rkey), local.slice(0, 4)), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(DeviceMemory, InvalidRequestsAreRefused) {
  const auto refused = [&](std::uint64_t offset, std::size_t length, unsigned access) {
    errno = 0;
    EXPECT_EQ(ibv_reg_dm_mr(pair.b_node.pd.get(), dm, offset, length, access), nullptr);
    EXPECT_EQ(errno, EINVAL);
  };
  refused(0, kDeviceBytes + 1, kAccess);
  refused(UINT64_MAX, 2, kAccess);
  refused(0, kDeviceBytes, kAllRemote);
  refused(0, kDeviceBytes, kAccess | IBV_ACCESS_ON_DEMAND);
  EXPECT_EQ(ibv_reg_dm_mr(pair.a_node.pd.get(), dm, 0, kDeviceBytes, kAccess), nullptr) << "another context's";

  ibv_device_attr_ex device{};
  ASSERT_EQ(api().query_device_ex(pair.a_node.context.get(), &device), 0);
  EXPECT_EQ(device.max_dm_size, kMaxDeviceMemory);
  const auto fails = [&](ibv_alloc_dm_attr attributes, int error) {
    errno = 0;
    EXPECT_EQ(ibv_alloc_dm(pair.a_node.context.get(), &attributes), nullptr);
    EXPECT_EQ(errno, error);
  };
  fails({kMaxDeviceMemory + 1, 0, 0}, EINVAL);
  fails({0, 0, 0}, EINVAL);
  fails({64, 13, 0}, EINVAL);
  fails({64, 0, 1}, EOPNOTSUPP);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
