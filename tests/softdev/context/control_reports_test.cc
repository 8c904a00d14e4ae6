// False reports that a process of the same user sends to the control socket of another process.
#include <gtest/gtest.h>
#include <poll.h>

#include <cstdint>

#include "softdev/local/peer.h"
#include "softdev/shared/control_protocol.h"
#include "softdev/shared/layout.h"
#include "softdev/shared/unix_packet.h"
#include "softdev/verbs/raw_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

/// A queue pair, and another process that may share memory with the queue pair's process.
struct Reported {
  Node node;
  Qp qp{node};
  std::shared_ptr<Peer> initiator;
  std::unique_ptr<RemoteQp> mapped;

  Reported() {
    qp.connect_to(qp.number());
    int error = 0;
    initiator = Peer::connect(qp.number(), error);
    EXPECT_EQ(error, 0);
    mapped = initiator->attach(qp.number(), 7, error);
    EXPECT_EQ(error, 0);
  }
  /// Reports that a request of the initiator broke the rules of the queue pair.
  void report(std::uint32_t event) const {
    Request request;
    request.kind = RequestKind::kFail;
    request.qpn = qp.number();
    request.argument = event;
    request.operand = mapped->view.shared->life.load();
    ASSERT_TRUE(send_packet(initiator->socket(), std::as_bytes(std::span(&request, 1)), {}, -1));
  }
  /// Whether the connection ends, without an event.
  [[nodiscard]] bool is_cut_off() const {
    pollfd ends[2] = {{initiator->socket(), POLLRDHUP, 0}, {node.context->async_fd, POLLIN, 0}};
    EXPECT_GT(poll(ends, 2, 20'000), 0);
    return ends[0].revents != 0 && ends[1].revents == 0;
  }
};

TEST(ControlReports, AFailureIsOneOfTheTwoEventsOfRequests) {
  for (const ibv_event_type known : {IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR}) {
    Reported scene;
    scene.report(known);
    ibv_async_event event{};
    ASSERT_EQ(api().get_async_event(scene.node.context.get(), &event), 0);
    EXPECT_EQ(event.event_type, known);
    EXPECT_EQ(event.element.qp, scene.qp.qp.get());
    api().ack_async_event(&event);
  }
}

/// Other events are about a completion queue, a port or a device. A program that took such an event would read a
/// different member of the union ibv_async_event::element than the queue pair that was stored in it.
TEST(ControlReports, AnotherEventEndsTheConnection) {
  for (const std::uint32_t other : {std::uint32_t{IBV_EVENT_CQ_ERR}, std::uint32_t{IBV_EVENT_DEVICE_FATAL},
                                    std::uint32_t{IBV_EVENT_SRQ_ERR}, 19U, 4711U, ~0U}) {
    const Reported scene;
    scene.report(other);
    EXPECT_TRUE(scene.is_cut_off()) << other;
    EXPECT_EQ(state_of(scene.qp), IBV_QPS_RTS) << other;
  }
}

}  // namespace
}  // namespace rdmacomm::softdev::test
