// raw_verbs.h - soft0 through its bare verbs, for the device's own tests.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <span>
#include <vector>

#include "softdev/common/api.h"
#include "softdev/host/soft_device.h"
#include "softdev/verbs/soft_verbs.h"
#include "verbs/handles.h"

namespace rdmacomm::softdev::test {

inline constexpr int kAllRemote =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

/// Whether `fd` is readable within `timeout_ms`.
inline bool readable(int fd, int timeout_ms = 0) {
  pollfd one{fd, POLLIN, 0};
  return poll(&one, 1, timeout_ms) == 1;
}

/// An opened soft0 with a protection domain.
struct Node {
  verbs::ContextHandle context;
  verbs::PdHandle pd;

  Node() {
    const verbs::DeviceList list(api());
    context = verbs::ContextHandle(api(), api().open_device(list[0]));
    pd = verbs::PdHandle(api(), api().alloc_pd(context.get()));
  }
  explicit Node(const DeviceIdentity& identity) {
    ibv_device** const list = list_devices({&identity, 1});
    context = verbs::ContextHandle(api(), api().open_device(list[0]));
    free_device_list(list);
    pd = verbs::PdHandle(api(), api().alloc_pd(context.get()));
  }
};

/// True if an asynchronous event waits.
inline bool has_event(const Node& node) {
  return readable(node.context->async_fd);
}

/// Registered memory of a node: shared with peers, or (own_memory) ordinary memory, like an application's.
struct Memory {
  Node& node;
  std::size_t size;
  bool own_memory;
  std::byte* data;
  verbs::MrHandle mr;

  explicit Memory(Node& node_, std::size_t bytes = 4096, int access = kAllRemote, bool own = false)
      : node(node_), size(bytes), own_memory(own) {
    void* address = own ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                        : api().allocate_memory(node.context.get(), bytes, false);
    data = static_cast<std::byte*>(address);
    mr = verbs::MrHandle(api(), api().reg_mr(node.pd.get(), address, bytes, access));
  }
  ~Memory() {
    mr.reset();
    if (data == nullptr) return;  // released by the test
    if (own_memory) {
      munmap(data, size);
    } else {
      api().free_memory(node.context.get(), data, size, false);
    }
  }
  [[nodiscard]] ibv_sge slice(std::size_t offset, std::size_t length) const {
    return {reinterpret_cast<std::uint64_t>(data) + offset, static_cast<std::uint32_t>(length), mr->lkey};
  }
  [[nodiscard]] std::uint64_t address(std::size_t offset = 0) const {
    return reinterpret_cast<std::uint64_t>(data) + offset;
  }
  void fill(unsigned seed) {
    for (std::size_t i = 0; i < size; ++i) data[i] = static_cast<std::byte>(i * 131 + seed + (i >> 8));
  }
};

struct QpSettings {
  ibv_qp_type type = IBV_QPT_RC;
  std::uint32_t depth = 16;
  std::uint32_t sges = 4;
  std::uint32_t inline_bytes = 64;
  bool signal_all = true;
  int access = kAllRemote;
  ibv_mtu mtu = IBV_MTU_4096;
  std::uint8_t timeout = 8;  // 1 ms
  std::uint8_t retry_count = 1;
  std::uint8_t rnr_retry = 7;
  std::uint8_t min_rnr_timer = 1;  // 10 us
  bool with_channel = false;
  ibv_srq* srq = nullptr;
  std::uint32_t qkey = 0x1234;  // UD
  ibv_xrcd* xrcd = nullptr;     // IBV_QPT_XRC_RECV
  ibv_cq* shared_cq = nullptr;  // instead of its own
};

/// A queue pair with a completion queue of its own.
struct Qp {
  Node& node;
  QpSettings settings;
  verbs::CompChannelHandle channel;
  verbs::CqHandle cq;
  verbs::QpHandle qp;

  explicit Qp(Node& node_, QpSettings chosen = {}) : node(node_), settings(chosen) {
    if (settings.with_channel) {
      channel = verbs::CompChannelHandle(api(), api().create_comp_channel(node.context.get()));
    }
    const int completions = static_cast<int>(std::max(256U, 2 * settings.depth));
    cq = verbs::CqHandle(api(), api().create_cq(node.context.get(), completions, this, channel.get(), 0));
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = settings.shared_cq != nullptr ? settings.shared_cq : cq.get();
    init.qp_type = settings.type;
    init.cap = {settings.depth, settings.depth, settings.sges, settings.sges, settings.inline_bytes};
    init.sq_sig_all = settings.signal_all ? 1 : 0;
    init.srq = settings.srq;
    qp = verbs::QpHandle(api(), settings.xrcd == nullptr ? api().create_qp(node.pd.get(), &init) : xrc_receiver());
  }

  [[nodiscard]] ibv_qp* xrc_receiver() const {
    ibv_qp_init_attr_ex init{};
    init.qp_type = IBV_QPT_XRC_RECV;
    init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    init.xrcd = settings.xrcd;
    return ibv_create_qp_ex(node.context.get(), &init);
  }

  int to_init() {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = 1;
    a.qp_access_flags = static_cast<unsigned>(settings.access);
    a.qkey = settings.qkey;
    const int own = settings.type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
    return api().modify_qp(qp.get(), &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | own);
  }
  int to_rtr(std::uint32_t target) {
    ibv_gid_entry gid{};
    api().query_gid_entry(node.context.get(), 1, 1, &gid);
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = settings.mtu;
    a.dest_qp_num = target;
    a.max_dest_rd_atomic = 16;
    a.min_rnr_timer = settings.min_rnr_timer;
    a.ah_attr.is_global = 1;
    a.ah_attr.port_num = 1;
    a.ah_attr.grh.dgid = gid.gid;
    a.ah_attr.grh.sgid_index = 1;
    const int reliable = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    return api().modify_qp(qp.get(), &a,
                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                               (settings.type == IBV_QPT_RC || settings.type == IBV_QPT_XRC_RECV ? reliable : 0));
  }
  int to_rts() {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_RTS;
    a.timeout = settings.timeout;
    a.retry_cnt = settings.retry_count;
    a.rnr_retry = settings.rnr_retry;
    a.max_rd_atomic = 16;
    int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (settings.type == IBV_QPT_RC || settings.type == IBV_QPT_XRC_SEND) {
      mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    }
    if (settings.type == IBV_QPT_XRC_RECV) mask |= IBV_QP_TIMEOUT;
    return api().modify_qp(qp.get(), &a, mask);
  }
  int to_state(ibv_qp_state state) {
    ibv_qp_attr a{};
    a.qp_state = state;
    return api().modify_qp(qp.get(), &a, IBV_QP_STATE);
  }
  /// Moves a queue pair for datagrams to RTS.
  void get_ready() {
    ASSERT_EQ(to_init(), 0);
    ASSERT_EQ(to_state(IBV_QPS_RTR), 0);
    ASSERT_EQ(to_rts(), 0);
  }
  void connect_to(std::uint32_t target) {
    ASSERT_EQ(to_init(), 0);
    ASSERT_EQ(to_rtr(target), 0);
    ASSERT_EQ(to_rts(), 0);
  }
  [[nodiscard]] std::uint32_t number() const { return qp->qp_num; }

  int post_recv(std::span<ibv_sge> slices, std::uint64_t id) {
    ibv_recv_wr wr{};
    wr.wr_id = id;
    wr.sg_list = slices.data();
    wr.num_sge = static_cast<int>(slices.size());
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(qp.get(), &wr, &bad);
  }
  int post_recv(ibv_sge slice, std::uint64_t id) { return post_recv(std::span(&slice, 1), id); }
  int post(ibv_send_wr wr, std::span<ibv_sge> slices) {
    wr.sg_list = slices.data();
    wr.num_sge = static_cast<int>(slices.size());
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp.get(), &wr, &bad);
  }
  int post(ibv_send_wr wr, ibv_sge slice) { return post(wr, std::span(&slice, 1)); }

  /// Polls up to `count` completions without waiting.
  std::vector<ibv_wc> poll(int count = 16) {
    std::vector<ibv_wc> found(static_cast<std::size_t>(count));
    const int n = ibv_poll_cq(cq.get(), count, found.data());
    EXPECT_GE(n, 0);
    found.resize(static_cast<std::size_t>(std::max(n, 0)));
    return found;
  }
  /// Returns the next completion. Fails the test if none arrives within 20 s.
  ibv_wc next() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < end) {
      const auto found = poll(1);
      if (!found.empty()) return found.front();
    }
    ADD_FAILURE() << "no completion within 20 s";
    ibv_wc none{};
    none.status = IBV_WC_GENERAL_ERR;
    return none;
  }
};

/// The state according to ibv_query_qp.
inline ibv_qp_state state_of(const Qp& qp) {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(api().query_qp(qp.qp.get(), &attributes, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(init.qp_type, qp.settings.type);
  return attributes.qp_state;
}

/// Two nodes with one queue pair each, connected.
struct Pair {
  Node a_node;
  Node b_node;
  Qp a;
  Qp b;
  explicit Pair(QpSettings a_settings = {}, QpSettings b_settings = {}) : a(a_node, a_settings), b(b_node, b_settings) {
    a.connect_to(b.number());
    b.connect_to(a.number());
  }
};

inline int post_shared_receive(ibv_srq* srq, std::uint64_t id, ibv_sge slice) {
  ibv_recv_wr wr{};
  wr.wr_id = id;
  wr.sg_list = &slice;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  return ibv_post_srq_recv(srq, &wr, &bad);
}

inline ibv_send_wr send_request(std::uint64_t id) {
  ibv_send_wr wr{};
  wr.wr_id = id;
  wr.opcode = IBV_WR_SEND;
  return wr;
}

inline ibv_send_wr rdma_request(ibv_wr_opcode opcode, std::uint64_t id, std::uint64_t address, std::uint32_t rkey) {
  ibv_send_wr wr{};
  wr.wr_id = id;
  wr.opcode = opcode;
  wr.wr.rdma.remote_addr = address;
  wr.wr.rdma.rkey = rkey;
  return wr;
}

inline ibv_send_wr atomic_request(ibv_wr_opcode opcode, std::uint64_t id, std::uint64_t address, std::uint32_t rkey,
                                  std::uint64_t compare_add, std::uint64_t swap = 0) {
  ibv_send_wr wr{};
  wr.wr_id = id;
  wr.opcode = opcode;
  wr.wr.atomic = {address, compare_add, swap, rkey};
  return wr;
}

}  // namespace rdmacomm::softdev::test
