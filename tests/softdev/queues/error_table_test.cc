// Each failure of a reliable queue pair: the exact completions at both ends, the states and the events. Checks the
// table of failures in docs/soft_device.md.
#include <fcntl.h>
#include <poll.h>

#include <cerrno>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "softdev/verbs/raw_verbs.h"
#include "softdev/verbs/soft_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

using Completions = std::vector<std::pair<std::uint64_t, ibv_wc_status>>;

/// The final state of one end.
struct Outcome {
  Completions completions;
  ibv_qp_state state = IBV_QPS_RTS;
  std::vector<ibv_event_type> events;
  bool operator==(const Outcome&) const = default;
};

void PrintTo(const Outcome& outcome, std::ostream* out) {
  for (const auto& [id, status] : outcome.completions) *out << id << ' ' << ibv_wc_status_str(status) << "; ";
  *out << "state " << outcome.state << ';';
  for (const ibv_event_type event : outcome.events) *out << ' ' << ibv_event_type_str(event);
}

// Requests and receive of A, receives of B. The later ones show the effect of the failure on other requests.
constexpr std::uint64_t kFailing = 1;
constexpr std::uint64_t kBehind = 2;
constexpr std::uint64_t kReceiveOfA = 3;
constexpr std::uint64_t kFirstOfB = 4;
constexpr std::uint64_t kSecondOfB = 5;

constexpr auto kFlushed = IBV_WC_WR_FLUSH_ERR;

/// Outcome of A if its first request fails with `status`.
Outcome failed_with(ibv_wc_status status) {
  return {{{kFailing, status}, {kBehind, kFlushed}, {kReceiveOfA, kFlushed}}, IBV_QPS_ERR, {}};
}
/// Outcome of B if it is not affected; its receives wait.
Outcome untouched() {
  return {};
}
/// Outcome of B if the request has broken its rules.
Outcome broken(ibv_event_type event) {
  return {{{kFirstOfB, kFlushed}, {kSecondOfB, kFlushed}}, IBV_QPS_ERR, {event}};
}

class ErrorTable : public ::testing::Test {
 protected:
  explicit ErrorTable(QpSettings a = {}) : pair(with_many_slices(a)) {}

  static QpSettings with_many_slices(QpSettings settings) {
    settings.sges = 32;
    return settings;
  }
  void post_receives(ibv_sge first_of_b) {
    ASSERT_EQ(pair.a.post_recv(local.slice(64, 8), kReceiveOfA), 0);
    ASSERT_EQ(pair.b.post_recv(first_of_b, kFirstOfB), 0);
    ASSERT_EQ(pair.b.post_recv(remote.slice(64, 64), kSecondOfB), 0);
  }
  void post_receives() { post_receives(remote.slice(0, 64)); }
  /// Posts the request that fails, and then a good one.
  void post(const ibv_send_wr& failing, std::span<ibv_sge> slices) {
    ASSERT_EQ(pair.a.post(failing, slices), 0);
    ASSERT_EQ(
        pair.a.post(rdma_request(IBV_WR_RDMA_WRITE, kBehind, remote.address(128), remote.mr->rkey), local.slice(0, 8)),
        0);
  }
  void post(const ibv_send_wr& failing, ibv_sge slice) { post(failing, std::span(&slice, 1)); }
  ibv_send_wr write(std::uint32_t rkey) const {
    return rdma_request(IBV_WR_RDMA_WRITE, kFailing, remote.address(), rkey);
  }

  /// Waits for the expected number of completions, then checks that no more arrive.
  static Outcome outcome_of(Qp& qp, const Outcome& expected) {
    Outcome found;
    const auto take = [&found](const ibv_wc& wc) { found.completions.emplace_back(wc.wr_id, wc.status); };
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < end) {
      for (const ibv_wc& wc : qp.poll()) take(wc);
      found.state = state_of(qp);
      if (found.completions.size() >= expected.completions.size() && found.state == expected.state) break;
    }
    ibv_context& context = *qp.node.context.get();
    pollfd readable{context.async_fd, POLLIN, 0};
    const int wait_ms = expected.events.empty() ? 0 : 20'000;
    EXPECT_EQ(poll(&readable, 1, wait_ms), expected.events.empty() ? 0 : 1);
    for (const ibv_wc& wc : qp.poll()) take(wc);
    fcntl(context.async_fd, F_SETFL, O_NONBLOCK);
    for (ibv_async_event event{}; api().get_async_event(&context, &event) == 0;) {
      EXPECT_EQ(event.element.qp, qp.qp.get());
      found.events.push_back(event.event_type);
      api().ack_async_event(&event);
    }
    std::ranges::sort(found.completions);  // sends and receives complete in any order
    return found;
  }
  void expect(const Outcome& a, const Outcome& b) {
    EXPECT_EQ(outcome_of(pair.a, a), a);
    EXPECT_EQ(outcome_of(pair.b, b), b);
    EXPECT_EQ(remote.data[128], std::byte{0}) << "what is behind a request that failed is not carried out";
  }

  Pair pair;
  Memory local{pair.a_node};
  Memory remote{pair.b_node};
};

TEST_F(ErrorTable, LocalLengthOfARequest) {
  // A message of this device has at most 1 GiB.
  constexpr std::size_t kPart = std::size_t{64} << 20;
  Memory large(pair.a_node, kPart);
  std::vector<ibv_sge> slices(17, large.slice(0, kPart));
  post_receives();
  post(send_request(kFailing), slices);
  expect(failed_with(IBV_WC_LOC_LEN_ERR), untouched());
}

TEST_F(ErrorTable, LocalLengthOfAReceive) {
  post_receives(remote.slice(0, 7));
  post(send_request(kFailing), local.slice(0, 8));
  Outcome b = broken(IBV_EVENT_QP_REQ_ERR);
  b.completions[0].second = IBV_WC_LOC_LEN_ERR;
  expect(failed_with(IBV_WC_REM_INV_REQ_ERR), b);
}

TEST_F(ErrorTable, LocalProtectionOfARequest) {
  post_receives();
  ibv_sge wrong = local.slice(0, 8);
  wrong.lkey += 1;
  post(send_request(kFailing), wrong);
  expect(failed_with(IBV_WC_LOC_PROT_ERR), untouched());
}

TEST_F(ErrorTable, LocalProtectionOfAReceive) {
  ibv_sge wrong = remote.slice(0, 64);
  wrong.lkey += 1;
  post_receives(wrong);
  post(send_request(kFailing), local.slice(0, 8));
  Outcome b = broken(IBV_EVENT_QP_REQ_ERR);
  b.completions[0].second = IBV_WC_LOC_PROT_ERR;
  expect(failed_with(IBV_WC_REM_OP_ERR), b);
}

TEST_F(ErrorTable, LocalOperation) {
  post_receives();
  ibv_send_wr invalidate{};
  invalidate.wr_id = kFailing;
  invalidate.opcode = IBV_WR_LOCAL_INV;
  invalidate.invalidate_rkey = 12345;  // no window has this key
  post(invalidate, std::span<ibv_sge>());
  expect(failed_with(IBV_WC_LOC_QP_OP_ERR), untouched());
}

TEST_F(ErrorTable, MemoryWindowBinding) {
  post_receives();
  ibv_mw* const window = ibv_alloc_mw(pair.a_node.pd.get(), IBV_MW_TYPE_2);
  ASSERT_NE(window, nullptr);
  ibv_send_wr bind{};
  bind.wr_id = kFailing;
  bind.opcode = IBV_WR_BIND_MW;
  bind.bind_mw = {window, ibv_inc_rkey(window->rkey), {local.mr.get(), local.address(), 5000, IBV_ACCESS_REMOTE_READ}};
  post(bind, std::span<ibv_sge>());
  expect(failed_with(IBV_WC_MW_BIND_ERR), untouched());
  EXPECT_EQ(ibv_dealloc_mw(window), 0);
}

TEST_F(ErrorTable, RemoteAccess) {
  post_receives();
  post(write(remote.mr->rkey + 1), local.slice(0, 8));
  expect(failed_with(IBV_WC_REM_ACCESS_ERR), broken(IBV_EVENT_QP_ACCESS_ERR));
}

TEST_F(ErrorTable, RemoteInvalidRequest) {
  post_receives();
  post(atomic_request(IBV_WR_ATOMIC_FETCH_AND_ADD, kFailing, remote.address(4), remote.mr->rkey, 1), local.slice(0, 8));
  expect(failed_with(IBV_WC_REM_INV_REQ_ERR), broken(IBV_EVENT_QP_REQ_ERR));
}

TEST_F(ErrorTable, RetryExceeded) {
  post_receives();
  ASSERT_EQ(pair.b.to_state(IBV_QPS_RESET), 0);
  post(write(remote.mr->rkey), local.slice(0, 8));
  expect(failed_with(IBV_WC_RETRY_EXC_ERR), {{}, IBV_QPS_RESET, {}});
}

class ErrorTableNotReady : public ErrorTable {
 protected:
  static QpSettings impatient() {
    QpSettings settings;
    settings.rnr_retry = 1;
    return settings;
  }
  ErrorTableNotReady() : ErrorTable(impatient()) {}
};

TEST_F(ErrorTableNotReady, ReceiverNotReady) {
  ASSERT_EQ(pair.a.post_recv(local.slice(64, 8), kReceiveOfA), 0);
  post(send_request(kFailing), local.slice(0, 8));
  expect(failed_with(IBV_WC_RNR_RETRY_EXC_ERR), untouched());
}

TEST_F(ErrorTable, Flush) {
  post_receives();
  ASSERT_EQ(pair.a.to_state(IBV_QPS_ERR), 0);
  post(write(remote.mr->rkey), local.slice(0, 8));
  expect(failed_with(kFlushed), untouched());
}

TEST_F(ErrorTable, CompletionQueueOverrun) {
  if (std::getenv(kLateVariable) != nullptr) GTEST_SKIP() << "late, no completion waits that nobody polls for";
  post_receives();
  ASSERT_EQ(resize_cq(pair.a.cq.get(), 1), 0);
  post(write(remote.mr->rkey), local.slice(0, 8));
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(pair.a.cq.get(), 1, &wc), -1);
  EXPECT_EQ(state_of(pair.a), IBV_QPS_ERR);
  ibv_async_event event{};
  ASSERT_EQ(api().get_async_event(pair.a_node.context.get(), &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(event.element.cq, pair.a.cq.get());
  api().ack_async_event(&event);
  ASSERT_EQ(api().get_async_event(pair.a_node.context.get(), &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_FATAL);
  EXPECT_EQ(event.element.qp, pair.a.qp.get());
  api().ack_async_event(&event);
  EXPECT_EQ(outcome_of(pair.b, untouched()), untouched());
}

TEST_F(ErrorTable, BadState) {
  Qp qp(pair.a_node);
  ibv_sge slice = local.slice(0, 8);
  ibv_send_wr send = send_request(kFailing);
  send.sg_list = &slice;
  send.num_sge = 1;
  for (const ibv_qp_state state : {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR}) {
    const bool is_first = state == IBV_QPS_RESET;
    ASSERT_EQ(is_first ? 0 : state == IBV_QPS_INIT ? qp.to_init() : qp.to_rtr(pair.b.number()), 0);
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_send(qp.qp.get(), &send, &bad), EINVAL);
    EXPECT_EQ(bad, &send);
    EXPECT_EQ(state_of(qp), state);
  }
  EXPECT_TRUE(qp.poll().empty());
  EXPECT_EQ(qp.to_state(IBV_QPS_SQE), EINVAL) << "no move leads there";
  EXPECT_EQ(outcome_of(pair.a, untouched()), untouched());
}

TEST_F(ErrorTable, UnsupportedOperation) {
  // A request.
  ibv_sge slice = local.slice(0, 8);
  ibv_send_wr segmented = send_request(kFailing);
  segmented.opcode = IBV_WR_TSO;
  segmented.sg_list = &slice;
  segmented.num_sge = 1;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(pair.a.qp.get(), &segmented, &bad), EOPNOTSUPP);
  EXPECT_EQ(bad, &segmented);
  // A kind of queue pair.
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = pair.a.cq.get();
  init.qp_type = IBV_QPT_RAW_PACKET;
  init.cap = {1, 1, 1, 1, 0};
  EXPECT_EQ(api().create_qp(pair.a_node.pd.get(), &init), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  // A registration.
  EXPECT_EQ(api().reg_mr(pair.a_node.pd.get(), local.data, 8, 1 << 19), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  // A completion queue with fields that no completion has.
  ibv_cq_init_attr_ex fields{};
  fields.cqe = 1;
  fields.wc_flags = std::uint64_t{1} << 60;
  EXPECT_EQ(ibv_create_cq_ex(pair.a_node.context.get(), &fields), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  // A shared receive queue of another size.
  ibv_srq_init_attr attributes{nullptr, {4, 1, 0}};
  const verbs::SrqHandle srq(api(), api().create_srq(pair.a_node.pd.get(), &attributes));
  attributes.attr.max_wr = 8;
  EXPECT_EQ(api().modify_srq(srq.get(), &attributes.attr, IBV_SRQ_MAX_WR), EOPNOTSUPP);
  EXPECT_EQ(outcome_of(pair.a, untouched()), untouched()) << "nothing has happened";
}

}  // namespace
}  // namespace rdmacomm::softdev::test
