// scene.h - two connected queue pairs in one process, by plain verbs, for programs that use them wrongly.
#pragma once

#include <infiniband/verbs.h>
#include <poll.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

namespace scene {

/// Ends the program with status 1 if a call fails that must succeed.
inline void need(bool succeeded, const char* call) {
  if (succeeded) return;
  std::fprintf(stderr, "the test itself has failed: %s\n", call);
  std::_Exit(1);
}
#define NEED(CALL) ::scene::need((CALL), #CALL)

/// An int, because a macro of verbs.h combines it with another enumeration.
inline constexpr int kLocalWrite = IBV_ACCESS_LOCAL_WRITE;
inline constexpr int kAllAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
inline constexpr std::size_t kBytes = 16384;

inline std::uint64_t number(const void* address) {
  return reinterpret_cast<std::uint64_t>(address);
}

/// Pages, and their registration. A program may end either, and sets the member to nullptr then.
struct Block {
  char* data = nullptr;
  ibv_mr* mr = nullptr;

  Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() {
    if (mr != nullptr) ibv_dereg_mr(mr);
    std::free(data);
  }
};

struct Device {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  /// Ended with the device, after the queue pairs and their requests.
  mutable std::vector<std::unique_ptr<Block>> blocks;

  Device() {
    ibv_device** const list = ibv_get_device_list(nullptr);
    NEED(list != nullptr && list[0] != nullptr);
    context = ibv_open_device(list[0]);
    NEED(context != nullptr);
    ibv_free_device_list(list);
    pd = ibv_alloc_pd(context);
    NEED(pd != nullptr);
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() {
    blocks.clear();
    ibv_dealloc_pd(pd);
    ibv_close_device(context);
  }

  Block& add_block() const { return *blocks.emplace_back(std::make_unique<Block>()); }
};

/// Registered pages of a device.
struct Memory {
  Block& block;
  char*& data = block.data;
  ibv_mr*& mr = block.mr;

  explicit Memory(const Device& device, int access = kLocalWrite) : block(device.add_block()) {
    data = static_cast<char*>(std::aligned_alloc(4096, kBytes));
    std::memset(data, 'a', kBytes);
    mr = ibv_reg_mr(device.pd, data, kBytes, access);
    NEED(mr != nullptr);
  }
  [[nodiscard]] ibv_sge slice(std::size_t offset, std::uint32_t length) const {
    return {number(data) + offset, length, mr->lkey};
  }
};

struct Settings {
  int entries = 64;
  std::uint32_t depth = 16;
  std::uint32_t slices = 2;
  std::uint32_t inline_bytes = 64;
  bool with_channel = false;
};

/// A queue pair with a completion queue.
struct Qp {
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;

  explicit Qp(const Device& device, const Settings& settings = {}) {
    if (settings.with_channel) channel = ibv_create_comp_channel(device.context);
    cq = ibv_create_cq(device.context, settings.entries, nullptr, channel, 0);
    NEED(cq != nullptr);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.cap = {settings.depth, settings.depth, settings.slices, settings.slices, settings.inline_bytes};
    init.qp_type = IBV_QPT_RC;
    qp = ibv_create_qp(device.pd, &init);
    NEED(qp != nullptr);
  }
  Qp(const Qp&) = delete;
  Qp& operator=(const Qp&) = delete;
  ~Qp() {
    if (qp != nullptr) ibv_destroy_qp(qp);
    if (cq != nullptr) ibv_destroy_cq(cq);
    if (channel != nullptr) ibv_destroy_comp_channel(channel);
  }

  void to_init() const {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = 1;
    attributes.qp_access_flags = kAllAccess;
    NEED(ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  }
  void to_rtr(const Qp& peer) const {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu = IBV_MTU_1024;
    attributes.dest_qp_num = peer.qp->qp_num;
    attributes.max_dest_rd_atomic = attributes.max_rd_atomic = 1;
    attributes.min_rnr_timer = 1;
    attributes.ah_attr.port_num = 1;
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.grh.sgid_index = 1;
    NEED(ibv_query_gid(qp->context, 1, 1, &attributes.ah_attr.grh.dgid) == 0);
    NEED(ibv_modify_qp(qp, &attributes,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
  }
  void to_rts() const {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTS;
    attributes.timeout = 14;
    attributes.retry_cnt = attributes.rnr_retry = 7;
    attributes.max_rd_atomic = 1;
    NEED(ibv_modify_qp(qp, &attributes,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                           IBV_QP_MAX_QP_RD_ATOMIC) == 0);
  }

  [[nodiscard]] int recv(ibv_sge slice, std::uint64_t wr_id = 1) const {
    ibv_recv_wr wr{};
    ibv_recv_wr* bad = nullptr;
    wr.wr_id = wr_id;
    wr.sg_list = &slice;
    wr.num_sge = 1;
    return ibv_post_recv(qp, &wr, &bad);
  }
  [[nodiscard]] static ibv_send_wr request(ibv_wr_opcode opcode, ibv_sge& slice, unsigned flags) {
    ibv_send_wr wr{};
    wr.wr_id = 2;
    wr.opcode = opcode;
    wr.sg_list = &slice;
    wr.num_sge = 1;
    wr.send_flags = flags;
    return wr;
  }
  [[nodiscard]] int post(ibv_send_wr& wr) const {
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp, &wr, &bad);
  }
  [[nodiscard]] int send(ibv_sge slice, unsigned flags = IBV_SEND_SIGNALED) const {
    ibv_send_wr wr = request(IBV_WR_SEND, slice, flags);
    return post(wr);
  }
  [[nodiscard]] int remote(ibv_wr_opcode opcode, ibv_sge slice, std::uint64_t address, std::uint32_t rkey) const {
    ibv_send_wr wr = request(opcode, slice, IBV_SEND_SIGNALED);
    wr.wr.rdma = {address, rkey};
    return post(wr);
  }

  /// Waits for one completion.
  [[nodiscard]] ibv_wc next() const {
    ibv_wc wc{};
    int found = 0;
    while (found == 0) found = ibv_poll_cq(cq, 1, &wc);
    NEED(found == 1);
    return wc;
  }
  void finish() const {
    const ibv_wc wc = next();
    NEED(wc.status == IBV_WC_SUCCESS);
  }
};

/// Connects two queue pairs to each other.
inline void connect(Qp& left, Qp& right) {
  left.to_init();
  right.to_init();
  left.to_rtr(right);
  right.to_rtr(left);
  left.to_rts();
  right.to_rts();
}

/// Connected and ready to send.
struct Pair {
  Device device;
  Qp left;
  Qp right;

  explicit Pair(const Settings& settings = {}) : left(device, settings), right(device, settings) {
    connect(left, right);
  }
};

}  // namespace scene
