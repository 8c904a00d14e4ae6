// Faults that need the peer's memory or process: the events at the responder, and processes that end or stop.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>

#include "softdev/faults/fault_plan.h"
#include "softdev/faults/fault_scene.h"
#include "softdev/local/two_processes.h"
#include "support/environment_variable.h"

namespace rdmacomm::softdev::test {
namespace {

/// Connections of this test use memory, also if the other tests use TCP.
struct FaultProcesses : ::testing::Test {
  rdmacomm::testing::EnvironmentVariable by_memory{kTcpVariable, "memory"};
};

TEST_F(FaultProcesses, TheResponderReportsARefusal) {
  for (const auto& [word, event] :
       {std::pair("REM_ACCESS_ERR", IBV_EVENT_QP_ACCESS_ERR), std::pair("REM_INV_REQ_ERR", IBV_EVENT_QP_REQ_ERR),
        std::pair("REM_OP_ERR", IBV_EVENT_QP_REQ_ERR)}) {
    FaultScene scene("at 1 fail " + std::string(word));
    ASSERT_EQ(scene.receive(5), 0);
    ASSERT_EQ(scene.write(1), 0);
    EXPECT_EQ(ibv_wc_status_str(scene.next_of_a()),
              ibv_wc_status_str(parse_fault_plan("fail " + std::string(word))->rules[0].status));
    EXPECT_EQ(next_event(scene.b_node), event) << word;
    EXPECT_EQ(scene.b.next().status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(state_of(scene.b), IBV_QPS_ERR);
  }
}

/// A process with a queue pair that is connected to this one, until it ends.
void wait_as_target(Line line) {
  Node node;
  Qp qp(node);
  Memory memory(node);
  introduce(line, qp, memory);
  for (;;) pause();
}

TEST_F(FaultProcesses, TheProcessOfThePeerIsEnded) {
  Child child(wait_as_target);
  const FaultScope faults("at 2 die peer");
  Node node;
  Qp qp(node);
  Memory memory(node);
  const QueueInfo peer = introduce(child.line(), qp, memory);
  for (std::uint64_t id = 1; id <= 3; ++id) {
    ASSERT_EQ(qp.post(rdma_request(IBV_WR_RDMA_WRITE, id, peer.address, peer.rkey), memory.slice(0, 8)), 0);
  }
  for (const ibv_wc_status status : {IBV_WC_SUCCESS, IBV_WC_RETRY_EXC_ERR, IBV_WC_WR_FLUSH_ERR}) {
    EXPECT_EQ(qp.next().status, status);
  }
  int status = child.wait_for_change();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TEST_F(FaultProcesses, TheProcessOfThePeerIsStoppedForATime) {
  Child child(wait_as_target);
  const FaultScope faults("at 1 freeze peer 20ms");
  Node node;
  Qp qp(node);
  Memory memory(node);
  const QueueInfo peer = introduce(child.line(), qp, memory);
  ASSERT_EQ(qp.post(rdma_request(IBV_WR_RDMA_WRITE, 1, peer.address, peer.rkey), memory.slice(0, 8)), 0);
  EXPECT_EQ(qp.next().status, IBV_WC_SUCCESS) << "its memory can still be accessed";
  int status = child.wait_for_change();
  if (WIFSTOPPED(status)) status = child.wait_for_change();  // else it has continued before this thread looked
  EXPECT_TRUE(WIFCONTINUED(status));
}

TEST_F(FaultProcesses, AContextThatClosesContinuesTheProcessesThatItHasStopped) {
  Child child(wait_as_target);
  int status = 0;
  {
    const FaultScope faults("at 1 freeze peer 1000s");
    Node node;
    Qp qp(node);
    Memory memory(node);
    const QueueInfo peer = introduce(child.line(), qp, memory);
    ASSERT_EQ(qp.post(rdma_request(IBV_WR_RDMA_WRITE, 1, peer.address, peer.rkey), memory.slice(0, 8)), 0);
    status = child.wait_for_change();
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  status = child.wait_for_change();
  EXPECT_TRUE(WIFCONTINUED(status));
}

/// The process on another host must not be touched, so only this queue pair sees the effect.
TEST(FaultsOverTcp, APeerOnAnotherHostIsNoLongerReached) {
  const rdmacomm::testing::EnvironmentVariable by_tcp(kTcpVariable, "tcp");
  FaultScene scene("at 2 freeze peer 20ms; at 3 die peer");
  for (std::uint64_t id = 1; id <= 3; ++id) ASSERT_EQ(scene.write(id), 0);
  EXPECT_EQ(scene.next_of_a(), IBV_WC_SUCCESS);
  EXPECT_EQ(scene.next_of_a(), IBV_WC_SUCCESS);
  EXPECT_EQ(scene.next_of_a(), IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(state_of(scene.b), IBV_QPS_RTS);
}

/// Posts requests to itself until the plan ends the process.
void post_with(const char* plan) {
  const FaultScope faults(plan);
  Node node;
  Qp qp(node);
  Memory memory(node);
  qp.connect_to(qp.number());
  for (std::uint64_t id = 1; id <= 3; ++id) {
    EXPECT_EQ(qp.post(rdma_request(IBV_WR_RDMA_WRITE, id, memory.address(64), memory.mr->rkey), memory.slice(0, 8)), 0);
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(qp.next().status, IBV_WC_SUCCESS);
}

TEST_F(FaultProcesses, TheProcessEndsAtARequest) {
  Child child([](Line) { post_with("at 3 die"); });
  int status = child.wait_for_change();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TEST_F(FaultProcesses, TheProcessStopsForATime) {
  Child child([](Line) { post_with("at 2 freeze 20ms; at 3 freeze 1us"); });
  int status = child.wait_for_change();
  EXPECT_TRUE(WIFSTOPPED(status) || WIFCONTINUED(status)) << "it has continued before this thread looked";
  do {
    status = child.wait_for_change();
  } while (WIFCONTINUED(status) || WIFSTOPPED(status));
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/// A child of fork() begins the plan again.
TEST_F(FaultProcesses, AChildCountsItsOwnQueuePairs) {
  const FaultScope faults("seed 3; at 1 fail GENERAL_ERR qp=1");
  Child child([](Line) {
    Node node;
    Memory memory(node);
    Qp qp(node);
    qp.connect_to(qp.number());
    EXPECT_EQ(qp.post(rdma_request(IBV_WR_RDMA_WRITE, 1, memory.address(64), memory.mr->rkey), memory.slice(0, 8)), 0);
    EXPECT_EQ(qp.next().status, IBV_WC_GENERAL_ERR);
    EXPECT_EQ(softdev::faults(), "seed 3; at 1 fail GENERAL_ERR qp=1");
  });
  int status = child.wait_for_change();
  EXPECT_EQ(status, 0);
  EXPECT_EQ(FaultScope::times(0), 0U);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
