// ATOMIC WRITE and FLUSH: requests by the calls ibv_wr_atomic_write and ibv_wr_flush of newer releases.
#include <cerrno>
#include <cstring>
#include <memory>

#include "softdev/common/newer_numbers.h"
#include "softdev/common/qp_ex.h"
#include "softdev/queues/request_builder.h"
#include "softdev/verbs/raw_verbs.h"
#include "softdev/verbs/soft_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

constexpr int kFlushable = kAllRemote | static_cast<int>(kAccessFlushGlobal);

/// Calls the functions that <infiniband/verbs.h> may not declare. They are behind wr_abort.
struct NewerCalls {
  ibv_qp_ex* qp;

  void atomic_write(std::uint32_t key, std::uint64_t address, const void* value) const {
    pointer<QpEx::AtomicWrite>(1)(qp, key, address, value);
  }
  void flush(std::uint32_t key, std::uint64_t address, std::size_t length, std::uint8_t type,
             std::uint8_t level) const {
    pointer<QpEx::Flush>(2)(qp, key, address, length, type, level);
  }

 private:
  template <typename Function>
  [[nodiscard]] Function* pointer(std::size_t place) const {
    Function* found = nullptr;
    const std::size_t offset = offsetof(ibv_qp_ex, wr_abort) + place * sizeof(void*);
    std::memcpy(static_cast<void*>(&found), reinterpret_cast<const std::byte*>(qp) + offset, sizeof(found));
    return found;
  }
};

/// A queue pair that is connected to another one of the same process.
struct CallScene {
  Node a_node;
  Node b_node;
  Qp a;
  Qp b;
  Memory remote;
  NewerCalls calls{};

  explicit CallScene(int access = kFlushable, int granted = kFlushable, bool own_memory = false)
      : a(a_node), b(b_node, {.access = granted}), remote(b_node, 4096, access, own_memory) {
    a.qp = create(IBV_QPT_RC);
    calls.qp = qp_to_qp_ex(a.qp.get());
    a.connect_to(b.number());
    b.connect_to(a.number());
  }
  [[nodiscard]] verbs::QpHandle create(ibv_qp_type type) const {
    ibv_qp_init_attr_ex init{};
    init.send_cq = init.recv_cq = a.cq.get();
    init.qp_type = type;
    init.cap = {16, 16, 1, 1, 0};
    init.sq_sig_all = 1;
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.pd = a_node.pd.get();
    init.send_ops_flags = kWithFlush | kWithAtomicWrite;
    return {api(), ibv_create_qp_ex(a_node.context.get(), &init)};
  }
  /// Returns the result of ibv_wr_complete.
  template <typename Call>
  int post(Call&& call) const {
    ibv_wr_start(calls.qp);
    calls.qp->wr_id = 7;
    calls.qp->wr_flags = 0;
    call(calls);
    return ibv_wr_complete(calls.qp);
  }
  ibv_wc run_write(std::uint64_t offset, std::uint64_t value) {
    EXPECT_EQ(post([&](const NewerCalls& to) { to.atomic_write(remote.mr->rkey, remote.address(offset), &value); }), 0);
    return a.next();
  }
  ibv_wc_status run_flush(std::uint64_t offset, std::size_t length, std::uint8_t type = kFlushGlobal,
                          std::uint8_t level = kFlushRange) {
    EXPECT_EQ(
        post([&](const NewerCalls& to) { to.flush(remote.mr->rkey, remote.address(offset), length, type, level); }), 0);
    const ibv_wc done = a.next();
    if (done.status == IBV_WC_SUCCESS) {
      EXPECT_EQ(done.opcode, kWcFlush);
      EXPECT_EQ(done.byte_len, 0U);
    }
    return done.status;
  }
};

TEST(AtomicWrite, StoresEightBytes) {
  for (const bool own_memory : {false, true}) {
    CallScene scene(kAllRemote, kAllRemote, own_memory);
    const ibv_wc done = scene.run_write(64, 0x0123456789abcdef);
    EXPECT_EQ(done.status, IBV_WC_SUCCESS);
    EXPECT_EQ(done.opcode, kWcAtomicWrite);
    EXPECT_EQ(done.wr_id, 7U);
    std::uint64_t arrived[3] = {};
    std::memcpy(arrived, scene.remote.data + 56, sizeof(arrived));
    EXPECT_EQ(arrived[0], 0U);
    EXPECT_EQ(arrived[1], 0x0123456789abcdefU);
    EXPECT_EQ(arrived[2], 0U);
  }
}

TEST(AtomicWrite, ByAWorkRequest) {
  CallScene scene;
  Memory local(scene.a_node);
  local.fill(1);
  const ibv_send_wr wr = rdma_request(kWrAtomicWrite, 1, scene.remote.address(8), scene.remote.mr->rkey);
  EXPECT_EQ(scene.a.post(wr, local.slice(0, 4)), EINVAL) << "not 8 bytes";
  EXPECT_EQ(scene.a.post(wr, local.slice(0, 16)), EINVAL);
  ASSERT_EQ(scene.a.post(wr, local.slice(0, 8)), 0);
  EXPECT_EQ(scene.a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(scene.remote.data + 8, local.data, 8), 0);
}

TEST(AtomicWrite, AnAddressThatIsNotAMultipleOfEightIsRefused) {
  CallScene scene;
  EXPECT_EQ(scene.run_write(4, 1).status, IBV_WC_REM_INV_REQ_ERR);
}

TEST(AtomicWrite, NeedsTheRightToWrite) {
  CallScene registration(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  EXPECT_EQ(registration.run_write(0, 1).status, IBV_WC_REM_ACCESS_ERR);
  CallScene queue_pair(kAllRemote, IBV_ACCESS_REMOTE_READ);
  EXPECT_EQ(queue_pair.run_write(0, 1).status, IBV_WC_REM_INV_REQ_ERR);
  CallScene end;
  EXPECT_EQ(end.run_write(4096, 1).status, IBV_WC_REM_ACCESS_ERR);
}

TEST(Flush, OfARangeOrOfTheRegistration) {
  CallScene scene;
  EXPECT_EQ(scene.run_write(0, 5).status, IBV_WC_SUCCESS);
  EXPECT_EQ(scene.run_flush(0, 4096), IBV_WC_SUCCESS);
  EXPECT_EQ(scene.run_flush(100, 0), IBV_WC_SUCCESS);
  EXPECT_EQ(scene.run_flush(1 << 20, 12'345'678, kFlushGlobal, kFlushRegistration), IBV_WC_SUCCESS)
      << "the range is ignored";
  EXPECT_EQ(scene.run_flush(1, 4096), IBV_WC_REM_ACCESS_ERR) << "beyond the end";
}

TEST(Flush, OfTheApplicationsMemory) {
  CallScene scene(kFlushable, kFlushable, true);
  EXPECT_EQ(scene.run_flush(0, 4096), IBV_WC_SUCCESS);
}

TEST(Flush, NeedsTheRightToFlush) {
  CallScene registration(kAllRemote);
  EXPECT_EQ(registration.run_flush(0, 8), IBV_WC_REM_ACCESS_ERR);
  CallScene queue_pair(kFlushable, kAllRemote);
  EXPECT_EQ(queue_pair.run_flush(0, 8), IBV_WC_REM_INV_REQ_ERR);
  CallScene persistent;
  EXPECT_EQ(persistent.run_flush(0, 8, kFlushGlobal | kFlushPersistent), IBV_WC_REM_INV_REQ_ERR);
  Node node;
  std::byte byte{};
  EXPECT_EQ(reg_mr(node.pd.get(), &byte, 1, static_cast<int>(kAccessFlushPersistent)), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP) << "no memory is persistent";
}

TEST(Flush, NumbersThatDoNotExistAreRefused) {
  const CallScene scene;
  const auto result = [&scene](std::uint8_t type, std::uint8_t level) {
    return scene.post(
        [&](const NewerCalls& to) { to.flush(scene.remote.mr->rkey, scene.remote.address(), 8, type, level); });
  };
  EXPECT_EQ(result(0, kFlushRange), EINVAL);
  EXPECT_EQ(result(4, kFlushRange), EINVAL);
  EXPECT_EQ(result(kFlushGlobal, 2), EINVAL);
}

TEST(Flush, OnlyConnectedQueuePairsHaveTheseRequests) {
  const CallScene scene;
  for (const ibv_qp_type type : {IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND}) {
    EXPECT_EQ(scene.create(type).get(), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
  Pair pair({.type = IBV_QPT_UC}, {.type = IBV_QPT_UC});
  Memory memory(pair.a_node);
  EXPECT_EQ(pair.a.post(rdma_request(kWrAtomicWrite, 1, 0, 0), memory.slice(0, 8)), EINVAL);
}

TEST(Flush, TheDeviceReportsIt) {
  const Node node;
  ibv_device_attr_ex attributes{};
  ASSERT_EQ(ibv_query_device_ex(node.context.get(), nullptr, &attributes), 0);
  const std::uint64_t wanted = kCanFlushGlobal | kCanWriteAtomically;
  EXPECT_EQ(attributes.device_cap_flags_ex & wanted, wanted);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
