// Each fault that a request can have: its completions, states and events.
#include <cerrno>
#include <chrono>
#include <string>
#include <vector>

#include "softdev/faults/fault_plan.h"
#include "softdev/faults/fault_scene.h"
#include "softdev/queues/datagrams.h"
#include "softdev/verbs/soft_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

TEST(RequestFaults, ARequestFailsAndTheRestIsFlushed) {
  for (const char* const word :
       {"LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_PROT_ERR", "MW_BIND_ERR", "BAD_RESP_ERR", "LOC_ACCESS_ERR",
        "RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR", "REM_ABORT_ERR", "FATAL_ERR", "RESP_TIMEOUT_ERR", "GENERAL_ERR"}) {
    FaultScene scene("at 2 fail " + std::string(word));
    const ibv_wc_status status = parse_fault_plan("fail " + std::string(word))->rules[0].status;
    scene.local.fill(1);
    for (std::uint64_t id = 1; id <= 3; ++id) ASSERT_EQ(scene.write(id), 0);
    EXPECT_EQ(scene.next_of_a(), IBV_WC_SUCCESS);
    const ibv_wc failed = scene.a.next();
    EXPECT_EQ(failed.status, status) << word;
    EXPECT_EQ(failed.wr_id, 2U);
    EXPECT_EQ(scene.next_of_a(), IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(state_of(scene.a), IBV_QPS_ERR);
    EXPECT_EQ(state_of(scene.b), IBV_QPS_RTS);
    EXPECT_EQ(FaultScope::times(0), 1U);
  }
}

TEST(RequestFaults, AFailedRequestHasNoEffect) {
  FaultScene scene("at 1 fail GENERAL_ERR");
  scene.local.fill(1);
  ASSERT_EQ(scene.write(1), 0);
  EXPECT_EQ(scene.next_of_a(), IBV_WC_GENERAL_ERR);
  EXPECT_EQ(scene.remote.data[64], std::byte{0});
}

TEST(RequestFaults, AfterAResetTheCountGoesOn) {
  FaultScene scene("at 1 fail GENERAL_ERR");
  ASSERT_EQ(scene.write(1), 0);
  EXPECT_EQ(scene.next_of_a(), IBV_WC_GENERAL_ERR);
  ASSERT_EQ(scene.a.to_state(IBV_QPS_RESET), 0);
  ASSERT_EQ(scene.b.to_state(IBV_QPS_RESET), 0);
  scene.a.connect_to(scene.b.number());
  scene.b.connect_to(scene.a.number());
  ASSERT_EQ(scene.write(2), 0);
  EXPECT_EQ(scene.next_of_a(), IBV_WC_SUCCESS);
}

TEST(RequestFaults, AnUnreliableQueuePairCanSendAgain) {
  QpSettings settings;
  settings.type = IBV_QPT_UC;
  FaultScene scene("at 1 fail LOC_QP_OP_ERR", settings);
  ASSERT_EQ(scene.write(1), 0);
  EXPECT_EQ(scene.next_of_a(), IBV_WC_LOC_QP_OP_ERR);
  EXPECT_EQ(state_of(scene.a), IBV_QPS_SQE);
  ASSERT_EQ(scene.a.to_state(IBV_QPS_RTS), 0);
  ASSERT_EQ(scene.write(2), 0);
  EXPECT_EQ(scene.next_of_a(), IBV_WC_SUCCESS);
}

TEST(RequestFaults, OnlyTheChosenQueuePairAndOpcode) {
  FaultScene scene("at 1 fail GENERAL_ERR qp=1 opcode=READ");
  Qp other(scene.a_node);
  other.connect_to(other.number());
  const auto read = rdma_request(IBV_WR_RDMA_READ, 1, scene.remote.address(), scene.remote.mr->rkey);
  ASSERT_EQ(scene.write(1), 0);
  EXPECT_EQ(scene.next_of_a(), IBV_WC_SUCCESS);
  auto own = rdma_request(IBV_WR_RDMA_READ, 1, scene.local.address(), scene.local.mr->rkey);
  ASSERT_EQ(other.post(own, scene.local.slice(64, 8)), 0);
  EXPECT_EQ(other.next().status, IBV_WC_SUCCESS);
  ASSERT_EQ(scene.a.post(read, scene.local.slice(0, 8)), 0);
  EXPECT_EQ(scene.next_of_a(), IBV_WC_GENERAL_ERR);
}

TEST(RequestFaults, RequestsOfTheCallsHaveFaultsToo) {
  const FaultScope faults("at 2 fail LOC_PROT_ERR");
  Node node;
  Memory memory(node);
  Qp qp(node);
  ibv_qp_init_attr_ex init{};
  init.pd = node.pd.get();
  init.send_cq = init.recv_cq = qp.cq.get();
  init.qp_type = IBV_QPT_RC;
  init.cap = {16, 16, 4, 4, 64};
  init.sq_sig_all = 1;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
  qp.qp = verbs::QpHandle(api(), ibv_create_qp_ex(node.context.get(), &init));
  qp.connect_to(qp.number());
  ibv_qp_ex* const calls = qp_to_qp_ex(qp.qp.get());
  ibv_wr_start(calls);
  for (calls->wr_id = 1; calls->wr_id <= 3; ++calls->wr_id) {
    ibv_wr_rdma_write(calls, memory.mr->rkey, memory.address(64));
    ibv_wr_set_sge(calls, memory.mr->lkey, memory.address(), 8);
  }
  ASSERT_EQ(ibv_wr_complete(calls), 0);
  for (const ibv_wc_status status : {IBV_WC_SUCCESS, IBV_WC_LOC_PROT_ERR, IBV_WC_WR_FLUSH_ERR}) {
    EXPECT_EQ(qp.next().status, status);
  }
}

TEST(RequestFaults, TheReceiverIsNotReadyForSomeTries) {
  QpSettings settings;
  settings.rnr_retry = 6;
  settings.min_rnr_timer = 20;  // 10 ms
  FaultScene scene("at 1 rnr 3 opcode=SEND", settings);
  ASSERT_EQ(scene.receive(1), 0);
  const auto before = Clock::now();
  ASSERT_EQ(scene.send(2), 0);
  ASSERT_EQ(scene.write(3), 0);
  const ibv_wc sent = scene.a.next();
  EXPECT_EQ(sent.wr_id, 2U) << "later requests wait behind it";
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_GE(Clock::now() - before, milliseconds(30));
  EXPECT_EQ(scene.b.next().status, IBV_WC_SUCCESS);
}

TEST(RequestFaults, TooManyTriesFail) {
  QpSettings settings;
  settings.rnr_retry = 2;
  FaultScene scene("at 1 rnr 3", settings);
  ASSERT_EQ(scene.receive(1), 0);
  ASSERT_EQ(scene.send(2), 0);
  EXPECT_EQ(scene.next_of_a(), IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_TRUE(scene.b.poll().empty());
}

TEST(RequestFaults, ADelayedRequestHasNoEffectYet) {
  FaultScene scene("at 1 delay 1000s");
  scene.local.fill(1);
  ASSERT_EQ(scene.write(1), 0);
  ASSERT_EQ(scene.write(2), 0);
  EXPECT_EQ(scene.remote.data[65], std::byte{0}) << "a buffer that is changed now is sent changed";
  EXPECT_TRUE(scene.a.poll().empty());
  ASSERT_EQ(scene.a.to_state(IBV_QPS_ERR), 0);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(scene.next_of_a(), IBV_WC_WR_FLUSH_ERR);
}

TEST(RequestFaults, ADelayedRequestBeginsLater) {
  FaultScene scene("at 1 delay 20ms");
  scene.local.fill(1);
  const auto before = Clock::now();
  ASSERT_EQ(scene.write(1), 0);
  EXPECT_EQ(scene.next_of_a(), IBV_WC_SUCCESS);
  EXPECT_GE(Clock::now() - before, milliseconds(20));
  EXPECT_NE(scene.remote.data[65], std::byte{0});
}

TEST(RequestFaults, DelaysOverlapAndSlowRequestsDoNot) {
  constexpr int kRequests = 5;
  const auto time_with = [](const char* plan) {
    FaultScene scene(plan);
    const auto before = Clock::now();
    for (std::uint64_t id = 1; id <= kRequests; ++id) EXPECT_EQ(scene.write(id), 0);
    for (int i = 0; i < kRequests; ++i) EXPECT_EQ(scene.next_of_a(), IBV_WC_SUCCESS);
    return Clock::now() - before;
  };
  EXPECT_GE(time_with("delay 40ms"), milliseconds(40));
  EXPECT_GE(time_with("slow 40ms"), milliseconds(200));
}

TEST(RequestFaults, ASleepingThreadIsWokenByADelayedRequest) {
  QpSettings settings;
  settings.with_channel = true;
  FaultScene scene("at 1 delay 20ms", settings);
  ASSERT_EQ(ibv_req_notify_cq(scene.a.cq.get(), 0), 0);
  ASSERT_EQ(scene.write(1), 0);
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  ASSERT_EQ(api().get_cq_event(scene.a.channel.get(), &cq, &context), 0);
  api().ack_cq_events(cq, 1);
  EXPECT_EQ(scene.next_of_a(), IBV_WC_SUCCESS);
}

TEST(RequestFaults, MessagesAreLost) {
  QpSettings settings;
  settings.type = IBV_QPT_UC;
  FaultScene scene("at 2 lose", settings);
  for (std::uint64_t id = 1; id <= 3; ++id) ASSERT_EQ(scene.receive(id), 0);
  for (std::uint64_t id = 1; id <= 3; ++id) {
    scene.local.data[0] = static_cast<std::byte>(id);
    ASSERT_EQ(scene.send(id), 0);
    EXPECT_EQ(scene.next_of_a(), IBV_WC_SUCCESS) << "the sender does not notice";
    if (id == 2) continue;
    EXPECT_EQ(scene.b.next().status, IBV_WC_SUCCESS);
    EXPECT_EQ(scene.remote.data[0], static_cast<std::byte>(id));
  }
  EXPECT_TRUE(scene.b.poll().empty());
}

TEST(RequestFaults, TheLinkGoesDownAndUp) {
  QpSettings settings;
  settings.timeout = 20;  // 4.3 s for each try
  FaultScene scene("at 2 link down 50ms", settings);
  ibv_port_attr port{};
  ASSERT_EQ(scene.write(1), 0);
  EXPECT_EQ(scene.next_of_a(), IBV_WC_SUCCESS);
  ASSERT_EQ(scene.write(2), 0);
  for (Node* const node : {&scene.a_node, &scene.b_node}) {
    EXPECT_EQ(next_event(*node), IBV_EVENT_PORT_ERR) << "each context of the device has the event";
  }
  EXPECT_EQ(scene.next_of_a(), IBV_WC_SUCCESS) << "it waits, and is sent again";
  EXPECT_EQ(next_event(scene.a_node), IBV_EVENT_PORT_ACTIVE);
  EXPECT_EQ(next_event(scene.b_node), IBV_EVENT_PORT_ACTIVE);
  ASSERT_EQ(api().query_port(scene.a_node.context.get(), 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
}

TEST(RequestFaults, ALinkThatStaysDownExceedsTheRetries) {
  FaultScene scene("at 1 link down 1000s");  // each try takes 1 ms
  ASSERT_EQ(scene.write(1), 0);
  ASSERT_EQ(scene.write(2), 0);
  EXPECT_EQ(scene.next_of_a(), IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(scene.next_of_a(), IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(next_event(scene.a_node), IBV_EVENT_PORT_ERR);
  ibv_port_attr port{};
  ASSERT_EQ(api().query_port(scene.a_node.context.get(), 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_DOWN);
}

TEST(RequestFaults, MessagesAreLostWhileTheLinkIsDown) {
  QpSettings settings;
  settings.type = IBV_QPT_UC;
  FaultScene scene("at 1 link down 1000s", settings);
  ASSERT_EQ(scene.receive(1), 0);
  ASSERT_EQ(scene.send(1), 0);
  EXPECT_EQ(scene.next_of_a(), IBV_WC_SUCCESS);
  EXPECT_TRUE(scene.b.poll().empty());
}

TEST(RequestFaults, AContextThatIsOpenedMeanwhileFindsTheLinkDown) {
  FaultScene scene("at 1 link down 1000s");
  ASSERT_EQ(scene.write(1), 0);
  EXPECT_EQ(scene.next_of_a(), IBV_WC_RETRY_EXC_ERR);
  Node later;
  ibv_port_attr port{};
  ASSERT_EQ(api().query_port(later.context.get(), 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_DOWN);
  EXPECT_FALSE(readable(later.context->async_fd)) << "it was never up there";
}

TEST(RequestFaults, DatagramsAreLostByTheirPeer) {
  const FaultScope faults("lose peer=fe80::77 type=UD; at 2 lose; at 3 link down 1000s");
  Node node;
  Memory memory(node);
  Qp sender(node, kUd);
  Qp receiver(node, kUd);
  sender.get_ready();
  receiver.get_ready();
  const Address address(node);
  for (std::uint64_t id = 1; id <= 3; ++id) ASSERT_EQ(receiver.post_recv(memory.slice(64, 64), id), 0);
  for (std::uint64_t id = 1; id <= 3; ++id) {
    ASSERT_EQ(sender.post(datagram(id, address, receiver.number()), memory.slice(0, 8)), 0);
    EXPECT_EQ(sender.next().status, IBV_WC_SUCCESS);
  }
  EXPECT_EQ(receiver.next().wr_id, 1U);
  EXPECT_TRUE(receiver.poll().empty()) << "the second one is lost, and the link is down for the third one";
  EXPECT_EQ(FaultScope::times(0), 0U) << "the datagrams have another target";
}

TEST(RequestFaults, EventsOfThePortAndOfTheQueuePair) {
  FaultScene scene(
      "at 1 event GID_CHANGE; at 1 event LID_CHANGE; at 1 event PKEY_CHANGE; at 1 event SM_CHANGE; "
      "at 1 event CLIENT_REREGISTER; at 1 event PORT_ERR; at 1 event PORT_ACTIVE; "
      "at 2 event COMM_EST; at 2 event SQ_DRAINED; at 2 event PATH_MIG; at 2 event PATH_MIG_ERR");
  ASSERT_EQ(scene.write(1), 0);
  ASSERT_EQ(scene.write(2), 0);
  for (const ibv_event_type expected :
       {IBV_EVENT_GID_CHANGE, IBV_EVENT_LID_CHANGE, IBV_EVENT_PKEY_CHANGE, IBV_EVENT_SM_CHANGE,
        IBV_EVENT_CLIENT_REREGISTER, IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_COMM_EST,
        IBV_EVENT_SQ_DRAINED, IBV_EVENT_PATH_MIG, IBV_EVENT_PATH_MIG_ERR}) {
    EXPECT_EQ(next_event(scene.a_node), expected);
  }
  for (int i = 0; i < 2; ++i) EXPECT_EQ(scene.next_of_a(), IBV_WC_SUCCESS) << "the request itself is not affected";
}

TEST(RequestFaults, ADeviceThatFailsFlushesAllAndRefusesCalls) {
  FaultScene scene("at 2 device fatal");
  Qp idle(scene.a_node);
  idle.connect_to(idle.number());
  ASSERT_EQ(idle.post_recv(scene.local.slice(0, 8), 8), 0);
  ASSERT_EQ(scene.a.post_recv(scene.local.slice(0, 8), 9), 0);
  ASSERT_EQ(scene.write(1), 0);
  EXPECT_EQ(scene.next_of_a(), IBV_WC_SUCCESS);
  ASSERT_EQ(scene.write(2), 0);
  EXPECT_EQ(scene.write(3), EIO);
  EXPECT_EQ(next_event(scene.a_node), IBV_EVENT_DEVICE_FATAL);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(scene.next_of_a(), IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(idle.next().status, IBV_WC_WR_FLUSH_ERR);

  EXPECT_EQ(scene.a.post_recv(scene.local.slice(0, 8), 9), EIO);
  EXPECT_EQ(scene.a.to_state(IBV_QPS_RESET), EIO);
  ibv_port_attr port{};
  ibv_device_attr device{};
  ibv_gid_entry gid{};
  EXPECT_EQ(api().query_port(scene.a_node.context.get(), 1, &port), EIO);
  EXPECT_EQ(api().query_device(scene.a_node.context.get(), &device), EIO);
  EXPECT_EQ(api().query_gid_entry(scene.a_node.context.get(), 1, 0, &gid), EIO);
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(api().query_qp(idle.qp.get(), &attributes, IBV_QP_STATE, &init), EIO);
  const ibv_gid group{};
  EXPECT_EQ(attach_mcast(idle.qp.get(), &group, 0), EIO);
  EXPECT_EQ(api().reg_mr(scene.a_node.pd.get(), scene.local.data, 8, 0), nullptr);
  EXPECT_EQ(errno, EIO);
  EXPECT_EQ(rereg_mr(scene.local.mr.get(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_CMD);
  EXPECT_EQ(api().create_cq(scene.a_node.context.get(), 1, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(errno, EIO);
  ibv_alloc_dm_attr wanted{.length = 64, .log_align_req = 0, .comp_mask = 0};
  EXPECT_EQ(alloc_dm(scene.a_node.context.get(), &wanted), nullptr);
  EXPECT_EQ(errno, EIO);
  EXPECT_EQ(alloc_null_mr(scene.a_node.pd.get()), nullptr);
  EXPECT_EQ(errno, EIO);

  Node again;
  EXPECT_EQ(api().query_device(again.context.get(), &device), 0) << "a program can open it again";
}

TEST(RequestFaults, TheCompletionQueueOverruns) {
  FaultScene scene("at 3 overrun");
  for (std::uint64_t id = 1; id <= 4; ++id) ASSERT_EQ(scene.write(id), 0);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(scene.next_of_a(), IBV_WC_SUCCESS) << "the earlier completions are not lost";
  EXPECT_EQ(next_event(scene.a_node), IBV_EVENT_CQ_ERR);
  EXPECT_EQ(next_event(scene.a_node), IBV_EVENT_QP_FATAL);
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(scene.a.cq.get(), 1, &wc), -1);
  EXPECT_EQ(state_of(scene.a), IBV_QPS_ERR);
}

TEST(RequestFaults, AQueuePairThatIsDestroyedBeforeItsOverrunIsForgotten) {
  FaultScene scene("at 2 overrun");
  for (std::uint64_t id = 1; id <= 2; ++id) ASSERT_EQ(scene.write(id), 0);
  scene.a.qp.reset();
  EXPECT_TRUE(scene.a.poll().empty());
  EXPECT_FALSE(readable(scene.a_node.context->async_fd));
}

TEST(RequestFaults, EachCallCanBeRefused) {
  const FaultScope faults(
      "at 1 refuse open_device EMFILE; at 1 refuse alloc_pd EPERM; at 1 refuse reg_mr; "
      "at 1 refuse create_comp_channel EMFILE; at 1 refuse create_cq EINVAL; at 1 refuse create_qp ENOSPC; "
      "at 1 refuse modify_qp ETIMEDOUT; at 1 refuse create_srq EBUSY; at 1 refuse create_ah ENODEV; "
      "at 1 refuse alloc_mw EAGAIN; at 1 refuse query_port EIO");
  const verbs::DeviceList list(api());
  EXPECT_EQ(api().open_device(list[0]), nullptr);
  EXPECT_EQ(errno, EMFILE);
  verbs::ContextHandle context(api(), api().open_device(list[0]));
  EXPECT_EQ(api().alloc_pd(context.get()), nullptr);
  EXPECT_EQ(errno, EPERM);
  Node node;
  ibv_context* const opened = node.context.get();
  EXPECT_EQ(api().reg_mr(node.pd.get(), &node, 8, 0), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(api().create_comp_channel(opened), nullptr);
  EXPECT_EQ(errno, EMFILE);
  EXPECT_EQ(api().create_cq(opened, 1, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  const verbs::CqHandle cq(api(), api().create_cq(opened, 1, nullptr, nullptr, 0));
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq.get();
  init.qp_type = IBV_QPT_RC;
  EXPECT_EQ(api().create_qp(node.pd.get(), &init), nullptr);
  EXPECT_EQ(errno, ENOSPC);
  Qp qp(node);
  EXPECT_EQ(qp.to_init(), ETIMEDOUT);
  EXPECT_EQ(qp.to_init(), 0);
  ibv_srq_init_attr srq{};
  srq.attr.max_wr = 1;
  EXPECT_EQ(api().create_srq(node.pd.get(), &srq), nullptr);
  EXPECT_EQ(errno, EBUSY);
  ibv_ah_attr address{};
  address.port_num = 1;
  EXPECT_EQ(create_ah(node.pd.get(), &address), nullptr);
  EXPECT_EQ(errno, ENODEV);
  EXPECT_EQ(alloc_mw(node.pd.get(), IBV_MW_TYPE_1), nullptr);
  EXPECT_EQ(errno, EAGAIN);
  ibv_port_attr port{};
  EXPECT_EQ(api().query_port(opened, 1, &port), EIO);
  EXPECT_EQ(api().query_port(opened, 1, &port), 0);
  for (const FaultCount& one : fault_counts()) EXPECT_EQ(one.times, 1U) << one.rule;
}

TEST(FaultFunctions, ABadPlanIsExplainedAndChangesNothing) {
  const FaultScope faults("seed 4; at 1 lose");
  const Status bad = set_faults("at 1 loose");
  EXPECT_EQ(bad.code(), std::errc::invalid_argument);
  EXPECT_NE(bad.message().find("\"loose\" cannot be used here"), std::string::npos) << bad.message();
  EXPECT_EQ(softdev::faults(), "seed 4; at 1 lose");
  ASSERT_EQ(fault_counts().size(), 1U);
  EXPECT_EQ(fault_counts()[0].rule, "at 1 lose");
}

TEST(FaultFunctions, WithoutAPlanTheyReturnNothing) {
  const FaultScope faults("");
  EXPECT_EQ(softdev::faults(), "");
  EXPECT_TRUE(fault_counts().empty());
}

}  // namespace
}  // namespace rdmacomm::softdev::test
