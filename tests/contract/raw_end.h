// raw_end.h - a bare queue pair of the device under test, for features that channels do not have (yet).
#pragma once

#include <gtest/gtest.h>

#include <optional>

#include "contract/contract_test.h"

namespace rdmacomm::contract {

[[nodiscard]] inline ibv_sge sge_of(const BufferSlice& slice) noexcept {
  return {slice.address, slice.length, slice.lkey};
}

/// Options of a bare queue pair.
struct RawOptions {
  ibv_srq* srq = nullptr;
  AdapterConfig config{};
};

/// A queue pair in INIT, with a completion queue of its own, on `device`. Members in creation order.
class RawEnd {
 public:
  RawEnd(DeviceCore& device, const RawOptions& options = {}) : device_(device), options_(options) {
    const verbs::Api& api = device.api();
    cq_ = verbs::CqHandle(api, api.create_cq(device.context(), 256, nullptr, nullptr, 0));
    EXPECT_TRUE(static_cast<bool>(cq_));
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq_.get();
    init.srq = options.srq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {16, options.srq == nullptr ? 16U : 0U, 1, options.srq == nullptr ? 1U : 0U, 0};
    init.sq_sig_all = 1;
    qp_ = verbs::QpHandle(api, api.create_qp(device.pd(), &init));
    EXPECT_TRUE(static_cast<bool>(qp_));
    apply(QpTransition::to_init(options.config, device.port(), device.limits().atomics));
  }

  [[nodiscard]] LinkEnd link_end(const std::string& ip) {
    return contract::link_end(device_, qp_.get(), device_.choose_gid().value(), options_.config, ip);
  }
  [[nodiscard]] ibv_qp* qp() const { return qp_.get(); }

  void to_error() { apply(QpTransition::to_error()); }
  void apply(const QpTransition& transition) {
    ibv_qp_attr attributes = transition.attributes;
    EXPECT_EQ(device_.api().modify_qp(qp_.get(), &attributes, transition.mask), 0);
  }

  int post_recv(const ibv_sge& slice, std::uint64_t id) {
    ibv_sge list = slice;
    ibv_recv_wr wr{};
    wr.wr_id = id;
    wr.sg_list = &list;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(qp_.get(), &wr, &bad);
  }
  /// A SEND.
  int post_send(const ibv_sge& slice, std::uint64_t id) { return post(IBV_WR_SEND, slice, id); }
  /// A request that accesses `remote`, unless it is a SEND.
  int post(ibv_wr_opcode opcode, const ibv_sge& slice, std::uint64_t id, const RemoteRegion& remote = {}) {
    ibv_sge list = slice;
    ibv_send_wr wr{};
    wr.wr_id = id;
    wr.opcode = opcode;
    wr.wr.rdma = {remote.address, remote.rkey};
    wr.sg_list = &list;
    wr.num_sge = 1;
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp_.get(), &wr, &bad);
  }
  /// The next completion, if one waits.
  [[nodiscard]] std::optional<ibv_wc> poll() {
    ibv_wc wc{};
    return ibv_poll_cq(cq_.get(), 1, &wc) == 1 ? std::optional(wc) : std::nullopt;
  }
  /// Returns the next completion. Fails the test if none arrives.
  ibv_wc next() {
    ibv_wc wc{};
    const Deadline deadline = patience();
    while (!deadline.passed()) {
      const int found = ibv_poll_cq(cq_.get(), 1, &wc);
      EXPECT_GE(found, 0);
      if (found != 0) return wc;
      std::this_thread::yield();
    }
    ADD_FAILURE() << "no completion";
    wc.status = IBV_WC_GENERAL_ERR;
    return wc;
  }

 private:
  DeviceCore& device_;
  RawOptions options_;
  verbs::CqHandle cq_;
  verbs::QpHandle qp_;
};

}  // namespace rdmacomm::contract
