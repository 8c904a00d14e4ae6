// xrc_scene.h - XRC domains, their queues and connections, for the device's own tests.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <vector>

#include "base/unique_fd.h"
#include "softdev/verbs/raw_verbs.h"

namespace rdmacomm::softdev::test {

inline constexpr std::uint32_t kDepth = 12;  // not a power of two

inline ibv_xrcd* open_domain(Node& node, int fd, int flags,
                             std::uint32_t mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS) {
  ibv_xrcd_init_attr init{mask, fd, flags};
  errno = 0;
  return ibv_open_xrcd(node.context.get(), &init);
}

struct Domain {
  ibv_xrcd* xrcd;
  explicit Domain(Node& node, int fd = -1) : xrcd(open_domain(node, fd, O_CREAT)) {}
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;
  ~Domain() { EXPECT_EQ(ibv_close_xrcd(xrcd), 0); }
};

/// A new file without a name, which no other process has.
inline UniqueFd nameless_file() {
  return UniqueFd(memfd_create("xrc_test", MFD_CLOEXEC));
}

inline ibv_srq_init_attr_ex srq_wanted(const Node& node, ibv_xrcd* xrcd, ibv_cq* cq) {
  ibv_srq_init_attr_ex init{};
  init.attr = {kDepth, 2, 0};
  init.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  init.srq_type = IBV_SRQT_XRC;
  init.pd = node.pd.get();
  init.xrcd = xrcd;
  init.cq = cq;
  return init;
}

/// An XRC shared receive queue with a completion queue of its own.
struct Queue {
  Node& node;
  verbs::CompChannelHandle channel;
  verbs::CqHandle cq;
  verbs::SrqHandle srq;

  Queue(Node& node_, const Domain& domain, int completions = 256)
      : node(node_),
        channel(api(), api().create_comp_channel(node.context.get())),
        cq(api(), api().create_cq(node.context.get(), completions, nullptr, channel.get(), 0)) {
    ibv_srq_init_attr_ex init = srq_wanted(node, domain.xrcd, cq.get());
    srq = verbs::SrqHandle(api(), ibv_create_srq_ex(node.context.get(), &init));
  }
  [[nodiscard]] std::uint32_t number() const {
    std::uint32_t found = 0;
    EXPECT_EQ(ibv_get_srq_num(srq.get(), &found), 0);
    return found;
  }
  int post(std::uint64_t id, ibv_sge slice) { return post_shared_receive(srq.get(), id, slice); }
  std::vector<ibv_wc> poll() {
    std::vector<ibv_wc> found(16);
    const int count = ibv_poll_cq(cq.get(), 16, found.data());
    EXPECT_GE(count, 0);
    found.resize(static_cast<std::size_t>(std::max(count, 0)));
    return found;
  }
  ibv_wc next() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    ibv_wc wc{};
    while (std::chrono::steady_clock::now() < end) {
      if (ibv_poll_cq(cq.get(), 1, &wc) == 1) return wc;
    }
    ADD_FAILURE() << "no completion within 20 s";
    wc.status = IBV_WC_GENERAL_ERR;
    return wc;
  }
};

inline QpSettings of_type(ibv_qp_type type, ibv_xrcd* xrcd = nullptr) {
  QpSettings settings;
  settings.type = type;
  settings.xrcd = xrcd;
  return settings;
}

/// Addresses a request to the queue with that number.
inline ibv_send_wr to_queue(std::uint32_t number, ibv_send_wr wr) {
  wr.qp_type.xrc.remote_srqn = number;
  return wr;
}

/// A sending node, a receiving node, a domain with one queue, and a connection.
struct Scene {
  Node a;
  Node b;
  Domain domain{b};
  Memory from{a, 1 << 16};
  Memory to{b, 1 << 16};
  Queue queue{b, domain};
  Qp sender;
  Qp receiver;

  explicit Scene(QpSettings sends = {}, QpSettings receives = {})
      : sender(a, with(sends, IBV_QPT_XRC_SEND, nullptr)), receiver(b, with(receives, IBV_QPT_XRC_RECV, domain.xrcd)) {
    connect(sender, receiver);
    from.fill(9);
  }
  static QpSettings with(QpSettings settings, ibv_qp_type type, ibv_xrcd* xrcd) {
    settings.type = type;
    settings.xrcd = xrcd;
    return settings;
  }
  static void connect(Qp& sender, Qp& receiver) {
    receiver.connect_to(sender.number());
    sender.connect_to(receiver.number());
  }
  int send(std::uint32_t bytes, std::uint32_t number) {
    return sender.post(to_queue(number, send_request(7)), from.slice(0, bytes));
  }
  int send(std::uint32_t bytes) { return send(bytes, queue.number()); }
  /// Expects that the sender has failed with `status` and that the target gets the event.
  void expect_failed(ibv_wc_status status, ibv_event_type type) {
    EXPECT_EQ(sender.next().status, status);
    EXPECT_EQ(state_of(sender), IBV_QPS_ERR);
    ibv_async_event event{};
    ASSERT_EQ(api().get_async_event(b.context.get(), &event), 0);
    EXPECT_EQ(event.event_type, type);
    EXPECT_EQ(event.element.qp, receiver.qp.get());
    api().ack_async_event(&event);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (state_of(receiver) != IBV_QPS_ERR && std::chrono::steady_clock::now() < end) sched_yield();
    EXPECT_EQ(state_of(receiver), IBV_QPS_ERR);
  }
};

}  // namespace rdmacomm::softdev::test
