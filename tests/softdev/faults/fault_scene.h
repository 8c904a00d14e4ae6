// fault_scene.h - queue pairs whose device has a plan of faults.
#pragma once

#include <cstdint>
#include <string>

#include "rdmacomm/softdev.h"
#include "softdev/verbs/raw_verbs.h"

namespace rdmacomm::softdev::test {

/// The plan of the contexts that are opened in this scope.
struct FaultScope {
  explicit FaultScope(const std::string& plan) {
    const Status status = set_faults(plan);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  FaultScope(const FaultScope&) = delete;
  FaultScope& operator=(const FaultScope&) = delete;
  ~FaultScope() { (void)set_faults(""); }

  /// How often the rule with this index has applied.
  [[nodiscard]] static std::uint64_t times(std::size_t rule) { return fault_counts().at(rule).times; }
};

/// Two connected queue pairs with memory: the first and the second one of the plan. Only `a` has requests.
struct FaultScene {
  FaultScope faults;
  Node a_node;
  Memory local{a_node};
  Node b_node;
  Memory remote{b_node};
  Qp a;
  Qp b;

  explicit FaultScene(const std::string& plan, QpSettings settings = {})
      : faults(plan), a(a_node, settings), b(b_node, settings) {
    a.connect_to(b.number());
    b.connect_to(a.number());
  }
  int write(std::uint64_t id) {
    return a.post(rdma_request(IBV_WR_RDMA_WRITE, id, remote.address(64), remote.mr->rkey), local.slice(0, 8));
  }
  int send(std::uint64_t id) { return a.post(send_request(id), local.slice(0, 8)); }
  int receive(std::uint64_t id) { return b.post_recv(remote.slice(0, 8), id); }
  /// The next completion of `a`.
  ibv_wc_status next_of_a() { return a.next().status; }
};

/// Waits for the next event of a context. Returns its type.
inline ibv_event_type next_event(Node& node) {
  ibv_async_event event{};
  if (!readable(node.context->async_fd, 20'000) || api().get_async_event(node.context.get(), &event) != 0) {
    ADD_FAILURE() << "no event";
    return IBV_EVENT_CQ_ERR;
  }
  api().ack_async_event(&event);
  return event.event_type;
}

}  // namespace rdmacomm::softdev::test
