// soft0_scene.h - a soft0 with queue pairs whose peers, apparently on another host, send the inputs of a fuzz target.
#pragma once

#include <infiniband/verbs.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/unique_fd.h"
#include "fuzz/properties.h"
#include "softdev/common/api.h"
#include "softdev/context/soft_context.h"
#include "softdev/local/link_terms.h"
#include "softdev/local/peer.h"
#include "softdev/queues/soft_qp.h"
#include "softdev/shared/control_protocol.h"
#include "softdev/shared/unix_packet.h"
#include "verbs/handles.h"

namespace rdmacomm::fuzz {

/// Lives as long as the process. soft0 treats its connections as TCP; they are socket pairs within the process.
class Soft0Scene {
 public:
  static constexpr std::size_t kBytes = 4096;       ///< memory that the peer may use
  static constexpr std::size_t kReceiveBytes = 64;  ///< size of each receive
  static constexpr std::uint64_t kReceives = 4;
  static constexpr std::uint64_t kFirstSend = 100;  ///< wr_id

  Soft0Scene() {
    setenv(softdev::kTcpVariable, "tcp", 1);
    take_peers_number();
    const verbs::DeviceList list(softdev::api());
    context_ = verbs::ContextHandle(softdev::api(), softdev::api().open_device(list[0]));
    RDMACOMM_FUZZ_CHECK(context_.get() != nullptr);
    pd_ = verbs::PdHandle(softdev::api(), softdev::api().alloc_pd(context_.get()));
    cq_ = verbs::CqHandle(softdev::api(), softdev::api().create_cq(context_.get(), 256, nullptr, nullptr, 0));
    mr_ = verbs::MrHandle(softdev::api(), softdev::api().reg_mr(pd_.get(), memory(), kBytes, kAccess));
    RDMACOMM_FUZZ_CHECK(cq_.get() != nullptr && mr_.get() != nullptr);
    RDMACOMM_FUZZ_CHECK(softdev::api().query_gid_entry(context_.get(), 1, 1, &gid_) == 0);
    connected_ = make_queue_pair(IBV_QPT_RC);
    datagram_ = make_queue_pair(IBV_QPT_UD);
    connect();
    begin_datagrams();
    int error = 0;
    itself_ = context().peers().get(connected_->qp_num, error);
    RDMACOMM_FUZZ_CHECK(itself_ != nullptr);
  }

  [[nodiscard]] softdev::SoftContext& context() { return softdev::SoftContext::from(context_.get()); }
  [[nodiscard]] ibv_qp* connected() { return connected_.get(); }
  [[nodiscard]] ibv_qp* datagram() { return datagram_.get(); }
  [[nodiscard]] std::shared_ptr<softdev::SoftQp> soft(ibv_qp* qp) { return context().queue_pairs().find(qp->qp_num); }
  /// The number of the peer of the connected queue pair. It is lower than the queue pair's own, so that the peer
  /// connects.
  [[nodiscard]] std::uint32_t peer() const noexcept { return peer_; }
  static constexpr std::uint32_t kQKey = 0x1234;
  /// The route to a peer on another host, from soft0's view. The connected queue pair uses loopback_route().
  [[nodiscard]] softdev::Route route() const {
    return {.by_memory = false, .source = gid_.gid, .target = gid_.gid, .interface = 0};
  }
  [[nodiscard]] const ibv_gid& gid() const { return gid_.gid; }
  /// The path of requests to the connected queue pair, see TcpGreeting::path.
  [[nodiscard]] std::uint64_t path() const {
    return softdev::path_word({.source = gid_.gid, .target = gid_.gid, .gid_type = gid_.gid_type});
  }
  [[nodiscard]] std::byte* memory() { return guarded_.data() + kGuard; }
  [[nodiscard]] std::uint64_t address() { return reinterpret_cast<std::uint64_t>(memory()); }
  [[nodiscard]] std::uint32_t key() { return mr_->rkey; }

  /// The connected queue pair's count of RESETs, as in QpShared.
  [[nodiscard]] std::uint32_t life() const noexcept { return life_; }
  [[nodiscard]] bool is_connected() {
    ibv_qp_attr attributes{};
    ibv_qp_init_attr init{};
    RDMACOMM_FUZZ_CHECK(softdev::api().query_qp(connected_.get(), &attributes, IBV_QP_STATE, &init) == 0);
    return attributes.qp_state == IBV_QPS_RTS;
  }
  /// Connects again, with nothing posted.
  void connect() {
    ibv_qp& qp = *connected_.get();
    ibv_qp_attr init = in_state(IBV_QPS_INIT);
    init.qp_access_flags = kAccess;
    change(qp, in_state(IBV_QPS_RESET), IBV_QP_STATE);
    ++life_;
    change(qp, init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    ibv_qp_attr rtr = in_state(IBV_QPS_RTR);
    rtr.path_mtu = IBV_MTU_4096;
    rtr.dest_qp_num = peer_;
    rtr.max_dest_rd_atomic = 16;
    rtr.min_rnr_timer = 1;
    rtr.ah_attr.is_global = 1;
    rtr.ah_attr.port_num = 1;
    rtr.ah_attr.grh.dgid = gid_.gid;
    rtr.ah_attr.grh.sgid_index = 1;
    change(qp, rtr,
           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
               IBV_QP_MIN_RNR_TIMER);
    ibv_qp_attr rts = in_state(IBV_QPS_RTS);
    rts.timeout = 14;
    rts.retry_cnt = 7;
    rts.rnr_retry = 7;
    rts.max_rd_atomic = 16;
    change(
        qp, rts,
        IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
  }

  /// Moves the queue pair for datagrams to RTS again, with nothing posted.
  void begin_datagrams() {
    ibv_qp& qp = *datagram_.get();
    ibv_qp_attr attributes = in_state(IBV_QPS_INIT);
    attributes.qkey = kQKey;
    change(qp, in_state(IBV_QPS_RESET), IBV_QP_STATE);
    change(qp, attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    change(qp, in_state(IBV_QPS_RTR), IBV_QP_STATE);
    change(qp, in_state(IBV_QPS_RTS), IBV_QP_STATE | IBV_QP_SQ_PSN);
  }

  void post_receives(ibv_qp* qp) {
    for (std::uint64_t i = 0; i < kReceives; ++i) {
      ibv_sge slice{address() + i * kReceiveBytes, kReceiveBytes, mr_->lkey};
      ibv_recv_wr request{};
      request.wr_id = i;
      request.sg_list = &slice;
      request.num_sge = 1;
      ibv_recv_wr* bad = nullptr;
      RDMACOMM_FUZZ_CHECK(ibv_post_recv(qp, &request, &bad) == 0);
    }
  }

  /// Posts one request of each kind that gets a different answer. Returns the number of requests.
  std::uint64_t post_sends() {
    std::uint64_t count = 0;
    for (const ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
      ibv_sge slice{address() + 1024, opcode == IBV_WR_RDMA_READ ? 64U : 8U, mr_->lkey};
      ibv_send_wr request{};
      request.wr_id = kFirstSend + count++;
      request.opcode = opcode;
      request.send_flags = IBV_SEND_SIGNALED;
      request.sg_list = &slice;
      request.num_sge = 1;
      request.wr.rdma.remote_addr = 4096;
      ibv_send_wr* bad = nullptr;
      RDMACOMM_FUZZ_CHECK(ibv_post_send(connected_.get(), &request, &bad) == 0);
    }
    return count;
  }

  /// Each request completes at most once, in order and within its limits; no byte outside of the memory was written.
  void check_completions(std::uint64_t sends) {
    std::uint64_t next_receive = 0;
    std::uint64_t next_send = kFirstSend;
    ibv_wc one{};
    while (ibv_poll_cq(cq_.get(), 1, &one) == 1) {
      RDMACOMM_FUZZ_CHECK(one.status <= IBV_WC_GENERAL_ERR);
      if (one.wr_id >= kFirstSend) {
        RDMACOMM_FUZZ_CHECK(one.wr_id == next_send++ && one.wr_id < kFirstSend + sends);
      } else {
        RDMACOMM_FUZZ_CHECK(one.wr_id == next_receive++ && one.wr_id < kReceives);
        const bool is_write = one.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
        if (one.status == IBV_WC_SUCCESS) RDMACOMM_FUZZ_CHECK(is_write || one.byte_len <= kReceiveBytes);
      }
    }
    const auto is_untouched = [](std::byte byte) { return byte == std::byte{}; };
    RDMACOMM_FUZZ_CHECK(std::all_of(guarded_.begin(), guarded_.begin() + kGuard, is_untouched));
    RDMACOMM_FUZZ_CHECK(std::all_of(guarded_.begin() + kGuard + kBytes, guarded_.end(), is_untouched));
  }

  /// Takes all pending asynchronous events.
  void take_events() {
    pollfd wait{context_->async_fd, POLLIN, 0};
    while (poll(&wait, 1, 0) == 1) {
      ibv_async_event event{};
      if (softdev::api().get_async_event(context_.get(), &event) != 0) return;
      const bool is_of_this = event.element.qp == connected_.get() || event.element.qp == datagram_.get();
      const bool is_refusal = event.event_type == IBV_EVENT_QP_ACCESS_ERR || event.event_type == IBV_EVENT_QP_REQ_ERR;
      if (is_of_this) RDMACOMM_FUZZ_CHECK(is_refusal || event.event_type == IBV_EVENT_COMM_EST);
      softdev::api().ack_async_event(&event);
    }
  }

 private:
  static constexpr std::size_t kGuard = 4096;
  static constexpr int kAccess =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

  /// Takes the peer's number from a block that no other process has while this one lives.
  void take_peers_number() {
    for (std::uint32_t block = 1; !peers_name_ && block < softdev::kQpnBlocks; ++block) {
      peers_name_ = softdev::bind_to(softdev::block_socket_name(block));
      peer_ = block << softdev::kQpnBlockBits | 1;
    }
    RDMACOMM_FUZZ_CHECK(peers_name_.valid());
  }
  [[nodiscard]] verbs::QpHandle make_queue_pair(ibv_qp_type type) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq_.get();
    init.qp_type = type;
    init.cap = {16, 16, 4, 4, 64};
    verbs::QpHandle qp(softdev::api(), softdev::api().create_qp(pd_.get(), &init));
    RDMACOMM_FUZZ_CHECK(qp.get() != nullptr);
    return qp;
  }
  [[nodiscard]] static ibv_qp_attr in_state(ibv_qp_state state) {
    ibv_qp_attr attributes{};
    attributes.qp_state = state;
    attributes.port_num = 1;
    return attributes;
  }
  static void change(ibv_qp& qp, ibv_qp_attr attributes, int named) {
    RDMACOMM_FUZZ_CHECK(softdev::api().modify_qp(&qp, &attributes, named) == 0);
  }

  alignas(4096) std::array<std::byte, kBytes + 2 * kGuard> guarded_{};
  UniqueFd peers_name_;
  std::uint32_t peer_ = 0;
  verbs::ContextHandle context_;
  verbs::PdHandle pd_;
  verbs::CqHandle cq_;
  verbs::MrHandle mr_;
  ibv_gid_entry gid_{};
  std::uint32_t life_ = 1;
  verbs::QpHandle connected_;
  verbs::QpHandle datagram_;
  std::shared_ptr<softdev::Peer> itself_;  // kept, so that not each input looks it up again
};

/// The two ends of a connection within the process. The input was sent by the second one, so the first one can read it.
class Soft0Input {
 public:
  explicit Soft0Input(Bytes bytes) {
    std::array<int, 2> ends{};
    RDMACOMM_FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
    socket = UniqueFd(ends[0]);
    peer_ = UniqueFd(ends[1]);
    if (bytes.empty()) return;
    const ssize_t sent = send(peer_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    RDMACOMM_FUZZ_CHECK(sent == static_cast<ssize_t>(bytes.size()));
  }
  /// The data that soft0 has sent.
  [[nodiscard]] std::vector<std::byte> output() {
    std::vector<std::byte> all;
    std::array<std::byte, 4096> part{};
    ssize_t got = 0;
    while ((got = recv(peer_.get(), part.data(), part.size(), MSG_DONTWAIT)) > 0) {
      for (const std::byte byte : std::span(part).first(static_cast<std::size_t>(got))) all.push_back(byte);
    }
    return all;
  }
  void close() { peer_.reset(); }

  UniqueFd socket;  ///< for soft0

 private:
  UniqueFd peer_;
};

}  // namespace rdmacomm::fuzz
