// Memory windows: the access that they grant, the peers that may use it, and its end.
#include <cerrno>
#include <cstring>

#include "softdev/verbs/raw_verbs.h"
#include "softdev/verbs/soft_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

constexpr int kForWindows = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;

class Window {
 public:
  Window(const Node& node, ibv_mw_type type) : mw_(ibv_alloc_mw(node.pd.get(), type)) { EXPECT_NE(mw_, nullptr); }
  Window(const Window&) = delete;
  ~Window() { reset(); }
  void reset() {
    if (mw_ == nullptr) return;
    EXPECT_EQ(ibv_dealloc_mw(mw_), 0);
    mw_ = nullptr;
  }
  [[nodiscard]] ibv_mw* get() const { return mw_; }

 private:
  ibv_mw* mw_;
};

/// A pair. `b` binds windows to its memory, which itself grants no access; `a` uses the windows.
struct WindowsScene {
  Pair pair;
  Memory local{pair.a_node};
  Memory remote{pair.b_node, 4096, kForWindows};

  WindowsScene() { local.fill(3); }

  [[nodiscard]] ibv_mw_bind_info part(std::size_t offset, std::size_t length,
                                      unsigned access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ) const {
    return {remote.mr.get(), remote.address(offset), length, access};
  }
  /// Type 2: binds by a request. Returns the completion's status.
  ibv_wc_status bind(Qp& at, const Window& window, std::uint32_t key, const ibv_mw_bind_info& info) {
    ibv_send_wr wr{};
    wr.wr_id = 9;
    wr.opcode = IBV_WR_BIND_MW;
    wr.bind_mw = {window.get(), key, info};
    EXPECT_EQ(at.post(wr, std::span<ibv_sge>()), 0);
    const ibv_wc wc = at.next();
    EXPECT_TRUE(wc.status != IBV_WC_SUCCESS || wc.opcode == IBV_WC_BIND_MW);
    return wc.status;
  }
  /// Type 1: binds by the call.
  ibv_wc_status bind(const Window& window, const ibv_mw_bind_info& info) {
    ibv_mw_bind request{7, IBV_SEND_SIGNALED, info};
    EXPECT_EQ(ibv_bind_mw(pair.b.qp.get(), window.get(), &request), 0);
    return pair.b.next().status;
  }
  ibv_wc_status invalidate(Qp& at, std::uint32_t key) {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_LOCAL_INV;
    wr.invalidate_rkey = key;
    EXPECT_EQ(at.post(wr, std::span<ibv_sge>()), 0);
    const ibv_wc wc = at.next();
    EXPECT_TRUE(wc.status != IBV_WC_SUCCESS || wc.opcode == IBV_WC_LOCAL_INV);
    return wc.status;
  }
  ibv_wc_status write(std::uint32_t key, std::size_t offset, std::size_t bytes = 8) {
    EXPECT_EQ(pair.a.post(rdma_request(IBV_WR_RDMA_WRITE, 1, remote.address(offset), key), local.slice(0, bytes)), 0);
    return pair.a.next().status;
  }
};

TEST(Windows, OfTypeOneGrantOnlyTheirRange) {
  WindowsScene scene;
  Window window(scene.pair.b_node, IBV_MW_TYPE_1);
  const std::uint32_t unbound = window.get()->rkey;
  ASSERT_EQ(scene.bind(window, scene.part(64, 128)), IBV_WC_SUCCESS);
  const std::uint32_t key = window.get()->rkey;
  EXPECT_NE(key, unbound);
  EXPECT_EQ(scene.write(key, 64, 128), IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(scene.remote.data + 64, scene.local.data, 128), 0);
  EXPECT_EQ(scene.write(key, 63), IBV_WC_REM_ACCESS_ERR);
}

TEST(Windows, OfTypeOneMoveWithTheNextBinding) {
  WindowsScene scene;
  Window window(scene.pair.b_node, IBV_MW_TYPE_1);
  ASSERT_EQ(scene.bind(window, scene.part(0, 64)), IBV_WC_SUCCESS);
  ASSERT_EQ(scene.bind(window, scene.part(1024, 64)), IBV_WC_SUCCESS);
  EXPECT_EQ(scene.write(window.get()->rkey, 1024), IBV_WC_SUCCESS);
  EXPECT_EQ(scene.write(window.get()->rkey - 1, 1024), IBV_WC_REM_ACCESS_ERR) << "the key of the first binding";
}

TEST(Windows, OfTypeOneEndWithAnEmptyBinding) {
  WindowsScene scene;
  Window window(scene.pair.b_node, IBV_MW_TYPE_1);
  ASSERT_EQ(scene.bind(window, scene.part(0, 64)), IBV_WC_SUCCESS);
  ASSERT_EQ(scene.bind(window, scene.part(0, 0)), IBV_WC_SUCCESS);
  EXPECT_EQ(scene.write(window.get()->rkey, 0), IBV_WC_REM_ACCESS_ERR);
}

TEST(Windows, OfTypeTwoServeTheQueuePairThatBoundThem) {
  WindowsScene scene;
  Window window(scene.pair.b_node, IBV_MW_TYPE_2);
  const std::uint32_t key = ibv_inc_rkey(window.get()->rkey);
  ASSERT_EQ(scene.bind(scene.pair.b, window, key, scene.part(0, 64)), IBV_WC_SUCCESS);
  EXPECT_EQ(scene.write(key, 0), IBV_WC_SUCCESS);

  Qp other(scene.pair.a_node);
  Qp target(scene.pair.b_node);
  other.connect_to(target.number());
  target.connect_to(other.number());
  ASSERT_EQ(other.post(rdma_request(IBV_WR_RDMA_WRITE, 1, scene.remote.address(), key), scene.local.slice(0, 8)), 0);
  EXPECT_EQ(other.next().status, IBV_WC_REM_ACCESS_ERR);
}

TEST(Windows, GrantOnlyTheAccessOfTheBinding) {
  WindowsScene scene;
  Window window(scene.pair.b_node, IBV_MW_TYPE_2);
  const std::uint32_t key = ibv_inc_rkey(window.get()->rkey);
  ASSERT_EQ(scene.bind(scene.pair.b, window, key, scene.part(0, 64, IBV_ACCESS_REMOTE_READ)), IBV_WC_SUCCESS);
  ASSERT_EQ(scene.pair.a.post(rdma_request(IBV_WR_RDMA_READ, 1, scene.remote.address(), key), scene.local.slice(0, 8)),
            0);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(scene.write(key, 0), IBV_WC_REM_ACCESS_ERR);
}

TEST(Windows, AreNoLocalKeys) {
  WindowsScene scene;
  Window window(scene.pair.b_node, IBV_MW_TYPE_2);
  const std::uint32_t key = ibv_inc_rkey(window.get()->rkey);
  ASSERT_EQ(scene.bind(scene.pair.b, window, key, scene.part(0, 64)), IBV_WC_SUCCESS);
  ibv_sge slice = scene.remote.slice(0, 8);
  slice.lkey = key;
  ASSERT_EQ(scene.pair.b.post(send_request(1), slice), 0);
  EXPECT_EQ(scene.pair.b.next().status, IBV_WC_LOC_PROT_ERR);
}

TEST(Windows, EndWithALocalInvalidation) {
  WindowsScene scene;
  Window window(scene.pair.b_node, IBV_MW_TYPE_2);
  const std::uint32_t key = ibv_inc_rkey(window.get()->rkey);
  ASSERT_EQ(scene.bind(scene.pair.b, window, key, scene.part(0, 64)), IBV_WC_SUCCESS);
  EXPECT_EQ(scene.bind(scene.pair.b, window, ibv_inc_rkey(key), scene.part(0, 64)), IBV_WC_MW_BIND_ERR)
      << "it is bound already";
  // Both ends are reset. If only one were, the other might lose the first messages that it sends.
  ASSERT_EQ(scene.pair.a.to_state(IBV_QPS_RESET), 0);
  ASSERT_EQ(scene.pair.b.to_state(IBV_QPS_RESET), 0);
  scene.pair.a.connect_to(scene.pair.b.number());
  scene.pair.b.connect_to(scene.pair.a.number());
  ASSERT_EQ(scene.invalidate(scene.pair.b, key), IBV_WC_SUCCESS);
  EXPECT_EQ(scene.write(key, 0), IBV_WC_REM_ACCESS_ERR);
}

TEST(Windows, CanBeBoundAgainAfterThat) {
  WindowsScene scene;
  Window window(scene.pair.b_node, IBV_MW_TYPE_2);
  std::uint32_t key = window.get()->rkey;
  for (int round = 0; round < 300; ++round) {  // the lower bits of the key repeat
    key = ibv_inc_rkey(key);
    ASSERT_EQ(scene.bind(scene.pair.b, window, key, scene.part(0, 64)), IBV_WC_SUCCESS);
    ASSERT_EQ(scene.write(key, 0), IBV_WC_SUCCESS);
    ASSERT_EQ(scene.invalidate(scene.pair.b, key), IBV_WC_SUCCESS);
  }
}

TEST(Windows, EndWithASendWithInvalidate) {
  WindowsScene scene;
  Window window(scene.pair.b_node, IBV_MW_TYPE_2);
  const std::uint32_t key = ibv_inc_rkey(window.get()->rkey);
  ASSERT_EQ(scene.bind(scene.pair.b, window, key, scene.part(0, 64)), IBV_WC_SUCCESS);
  ASSERT_EQ(scene.pair.b.post_recv(scene.remote.slice(1024, 64), 5), 0);
  ibv_send_wr wr = send_request(6);
  wr.opcode = IBV_WR_SEND_WITH_INV;
  wr.invalidate_rkey = key;
  ASSERT_EQ(scene.pair.a.post(wr, scene.local.slice(0, 16)), 0);
  EXPECT_EQ(scene.pair.a.next().opcode, IBV_WC_SEND);
  // The target has not polled yet.
  EXPECT_EQ(scene.write(key, 0), IBV_WC_REM_ACCESS_ERR);
  const ibv_wc received = scene.pair.b.next();
  EXPECT_EQ(received.wr_id, 5U);
  EXPECT_EQ(received.wc_flags, static_cast<unsigned>(IBV_WC_WITH_INV));
  EXPECT_EQ(received.invalidated_rkey, key);
}

TEST(Windows, AMessageThatInvalidatesAnUnboundKeyIsRefused) {
  WindowsScene scene;
  ASSERT_EQ(scene.pair.b.post_recv(scene.remote.slice(1024, 64), 5), 0);
  ibv_send_wr wr = send_request(6);
  wr.opcode = IBV_WR_SEND_WITH_INV;
  wr.invalidate_rkey = scene.remote.mr->rkey;
  ASSERT_EQ(scene.pair.a.post(wr, scene.local.slice(0, 16)), 0);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_REM_ACCESS_ERR);
}

TEST(Windows, KeepTheirRegistrationAndEndWhenTheyAreDeallocated) {
  WindowsScene scene;
  Window window(scene.pair.b_node, IBV_MW_TYPE_2);
  const std::uint32_t key = ibv_inc_rkey(window.get()->rkey);
  ASSERT_EQ(scene.bind(scene.pair.b, window, key, scene.part(0, 64)), IBV_WC_SUCCESS);
  EXPECT_EQ(api().dereg_mr(scene.remote.mr.get()), EBUSY);
  EXPECT_EQ(api().dealloc_pd(scene.pair.b_node.pd.get()), EBUSY);
  window.reset();
  EXPECT_EQ(scene.write(key, 0), IBV_WC_REM_ACCESS_ERR);
}

TEST(Windows, InvalidBindingsAreRefused) {
  const auto refused = [](auto&& change) {
    WindowsScene scene;
    Window window(scene.pair.b_node, IBV_MW_TYPE_2);
    ibv_mw_bind_info info = scene.part(0, 64);
    std::uint32_t key = ibv_inc_rkey(window.get()->rkey);
    change(scene, info, key);
    EXPECT_EQ(scene.bind(scene.pair.b, window, key, info), IBV_WC_MW_BIND_ERR);
    EXPECT_EQ(state_of(scene.pair.b), IBV_QPS_ERR);
  };
  refused([](WindowsScene&, ibv_mw_bind_info& info, std::uint32_t&) { info.length = 5000; });
  refused([](WindowsScene&, ibv_mw_bind_info& info, std::uint32_t&) { info.addr -= 8; });
  refused([](WindowsScene&, ibv_mw_bind_info&, std::uint32_t& key) { key += 256; });
}

TEST(Windows, NeedARegistrationThatAllowsBinding) {
  WindowsScene scene;
  Memory plain(scene.pair.b_node);
  Window window(scene.pair.b_node, IBV_MW_TYPE_2);
  const ibv_mw_bind_info info{plain.mr.get(), plain.address(), 64, IBV_ACCESS_REMOTE_READ};
  EXPECT_EQ(scene.bind(scene.pair.b, window, ibv_inc_rkey(window.get()->rkey), info), IBV_WC_MW_BIND_ERR);
}

TEST(Windows, CanBeBoundByTheIbvWrCalls) {
  WindowsScene scene;
  ibv_qp_init_attr_ex init{};
  init.send_cq = init.recv_cq = scene.pair.b.cq.get();
  init.qp_type = IBV_QPT_RC;
  init.cap = {4, 4, 1, 1, 0};
  init.sq_sig_all = 1;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = scene.pair.b_node.pd.get();
  init.send_ops_flags = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV;
  Qp& b = scene.pair.b;
  b.qp = verbs::QpHandle(api(), ibv_create_qp_ex(scene.pair.b_node.context.get(), &init));
  scene.pair.a.to_state(IBV_QPS_RESET);
  scene.pair.a.connect_to(b.number());
  b.connect_to(scene.pair.a.number());
  ibv_qp_ex* const calls = qp_to_qp_ex(b.qp.get());
  Window window(scene.pair.b_node, IBV_MW_TYPE_2);
  const std::uint32_t key = ibv_inc_rkey(window.get()->rkey);
  const ibv_mw_bind_info info = scene.part(0, 64);
  ibv_wr_start(calls);
  ibv_wr_bind_mw(calls, window.get(), key, &info);
  ASSERT_EQ(ibv_wr_complete(calls), 0);
  EXPECT_EQ(b.next().opcode, IBV_WC_BIND_MW);
  EXPECT_EQ(scene.write(key, 0), IBV_WC_SUCCESS);
  ibv_wr_start(calls);
  ibv_wr_local_inv(calls, key);
  ASSERT_EQ(ibv_wr_complete(calls), 0);
  EXPECT_EQ(b.next().opcode, IBV_WC_LOCAL_INV);
  ibv_wr_start(calls);
  ibv_wr_send_inv(calls, 12345);  // no window is bound at the peer
  ASSERT_EQ(ibv_wr_complete(calls), 0);
  EXPECT_TRUE(b.poll().empty()) << "no receive is posted";
}

TEST(Windows, RequestsWithoutAWindowOrARegistration) {
  WindowsScene scene;
  Window window(scene.pair.b_node, IBV_MW_TYPE_2);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_BIND_MW;
  wr.bind_mw = {nullptr, window.get()->rkey, scene.part(0, 64)};
  EXPECT_EQ(scene.pair.b.post(wr, std::span<ibv_sge>()), EINVAL);
  wr.bind_mw = {window.get(), window.get()->rkey, {nullptr, 0, 64, 0}};
  EXPECT_EQ(scene.pair.b.post(wr, std::span<ibv_sge>()), EINVAL);
}

TEST(Windows, InvalidTypesAreRefused) {
  Node node;
  EXPECT_EQ(ibv_alloc_mw(node.pd.get(), static_cast<ibv_mw_type>(3)), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
