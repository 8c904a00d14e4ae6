// The errors of the library on a device that is told to fail: each fault of docs/faults.md, and the code that it causes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <string>
#include <utility>
#include <vector>

#include "channel/channel_core.h"
#include "rdmacomm/softdev.h"
#include "support/connected_pair.h"
#include "support/forked_child.h"

namespace rdmacomm {
namespace {

using namespace std::chrono_literals;
using rdmacomm::testing::ConnectedPair;
using rdmacomm::testing::ConnectedPairTest;
using rdmacomm::testing::ForkedChild;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DeviceFaultsTest : public ConnectedPairTest {
 protected:
  void SetUp() override {}
  void TearDown() override { (void)softdev::set_faults(""); }

  /// Connects a pair under the plan. Only `left` posts requests.
  void start_with(const std::string& plan) {
    const Status planned = softdev::set_faults(plan);
    ASSERT_TRUE(planned.ok()) << planned.message();
    AdapterConfig config;
    config.ack_timeout = 1ms;
    config.retry_count = 1;
    start({.left = config, .right = config});
    source_ = left().buffer(64);
    target_ = right().buffer(64);
  }
  Outcome write(std::uint64_t id) {
    return left().channel->post_write(source_.at(0).first(8), target_.remote_region(), {.id = id});
  }
  /// The codes of three WRITEs.
  std::vector<Errc> three_writes() {
    for (std::uint64_t id = 1; id <= 3; ++id) EXPECT_TRUE(write(id));
    std::vector<Errc> codes;
    for (std::uint64_t id = 1; id <= 3; ++id) {
      const Completion completion = left().next();
      EXPECT_EQ(completion.id, id);
      codes.push_back(completion.error);
    }
    return codes;
  }

  RDMABuffer source_;
  RDMABuffer target_;
};

TEST_F(DeviceFaultsTest, EachStatusHasItsCode) {
  for (const auto& [status, code] : {
           std::pair("LOC_LEN_ERR", Errc::kLocalLength),
           std::pair("LOC_QP_OP_ERR", Errc::kLocalQueuePair),
           std::pair("LOC_PROT_ERR", Errc::kLocalProtection),
           std::pair("REM_INV_REQ_ERR", Errc::kRemoteInvalidRequest),
           std::pair("REM_ACCESS_ERR", Errc::kRemoteAccess),
           std::pair("REM_OP_ERR", Errc::kRemoteOperation),
           std::pair("RETRY_EXC_ERR", Errc::kRetryExceeded),
           std::pair("RNR_RETRY_EXC_ERR", Errc::kRnrRetryExceeded),
           std::pair("FATAL_ERR", Errc::kCompletionFailed),
           std::pair("GENERAL_ERR", Errc::kCompletionFailed),
       }) {
    start_with("at 2 fail " + std::string(status) + " qp=1");
    EXPECT_THAT(three_writes(), ElementsAre(Errc::kOk, code, Errc::kFlushed)) << status;
    ASSERT_TRUE(write(4));
    EXPECT_EQ(left().next().error, Errc::kFlushed);
  }
}

TEST_F(DeviceFaultsTest, ALinkThatStaysDownExceedsTheRetries) {
  start_with("at 2 link down 1000s qp=1");
  EXPECT_THAT(three_writes(), ElementsAre(Errc::kOk, Errc::kRetryExceeded, Errc::kFlushed));
}

TEST_F(DeviceFaultsTest, FaultsThatTheVerbsHide) {
  start_with(
      "delay 1us..1ms; 50% slow 1us..1ms; reorder 8; at 2 link down 1us; at 2 freeze 1ms; at 1 event GID_CHANGE");
  EXPECT_THAT(three_writes(), ElementsAre(Errc::kOk, Errc::kOk, Errc::kOk));
}

TEST_F(DeviceFaultsTest, AReceiverThatIsNotReady) {
  start_with("at 1 rnr 2 qp=1");
  ASSERT_TRUE(right().channel->post_recv(target_.at(0), {.id = 5}));
  ASSERT_TRUE(left().channel->post_send(source_.at(0).first(8), {.id = 6}));
  EXPECT_EQ(left().next().error, Errc::kOk);
  EXPECT_EQ(right().next().id, 5U);
}

TEST_F(DeviceFaultsTest, ADeviceThatFailsIsLost) {
  start_with("at 2 device fatal qp=1");
  const auto lost = left().device->events().subscribe([](const DeviceEvent&) {});
  ASSERT_TRUE(lost.has_value());
  ASSERT_TRUE(write(1));
  EXPECT_EQ(left().next().error, Errc::kOk);
  ASSERT_TRUE(write(2));
  EXPECT_FALSE(write(3));
  EXPECT_EQ(left().next().error, Errc::kFlushed);
  pollfd readable{left().device->events().fd(), POLLIN, 0};
  ASSERT_EQ(poll(&readable, 1, 20'000), 1);
  left().device->events().take();
  const Status health = left().device->events().health();
  EXPECT_EQ(health.code(), Errc::kDeviceLost);
  EXPECT_THAT(health.message(), HasSubstr("it reports: local catastrophic error"));
  EXPECT_FALSE(RDMABuffer::allocate(left().device, {}).has_value());
}

TEST_F(DeviceFaultsTest, ACompletionQueueThatOverrunsFailsToPoll) {
  start_with("at 1 overrun qp=1");
  ASSERT_TRUE(write(1));
  const Deadline deadline = Deadline::after(20s);
  Completion completion;
  Polled polled = left().channel->poll({&completion, 1});
  while (polled && !deadline.passed()) polled = left().channel->poll({&completion, 1});
  EXPECT_FALSE(polled);
}

TEST_F(DeviceFaultsTest, CallsThatAreRefused) {
  ASSERT_TRUE(
      softdev::set_faults("at 1 refuse open_device; at 1 refuse create_cq; at 1 refuse create_qp ENOSPC; "
                          "at 1 refuse modify_qp EIO; at 3 refuse reg_mr"));
  std::vector<std::string> errors;
  for (int i = 0; i < 4; ++i) {
    const auto refused = ConnectedPair::make();
    ASSERT_FALSE(refused.has_value()) << i;
    EXPECT_FALSE(refused.error().message().empty());
    errors.push_back(refused.error().message());
  }
  EXPECT_THAT(errors[1], HasSubstr("completion queue"));
  EXPECT_THAT(errors[2], HasSubstr("queue pair"));
  auto pair = ConnectedPair::make();
  ASSERT_TRUE(pair.has_value()) << pair.error().message();
  EXPECT_TRUE(RDMABuffer::allocate(pair->left.device, {}).has_value());
  EXPECT_TRUE(RDMABuffer::allocate(pair->left.device, {}).has_value());
  EXPECT_FALSE(RDMABuffer::allocate(pair->left.device, {}).has_value());
  for (const softdev::FaultCount& one : softdev::fault_counts()) EXPECT_EQ(one.times, 1U) << one.rule;
}

TEST_F(DeviceFaultsTest, AProcessEndsAtItsRequest) {
  for (const char* const plan : {"at 2 die qp=1", "at 2 die peer qp=1"}) {
    ForkedChild child([&](int) {
      start_with(plan);
      (void)three_writes();
    });
    const int status = child.wait();
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << plan;
  }
}

TEST_F(DeviceFaultsTest, TheSamePlanGivesTheSameCodesAHundredTimes) {
  const auto codes = [this] {
    start_with("seed 11; 10% fail GENERAL_ERR qp=1; 20% slow 1us..20us; 20% rnr 1");
    std::vector<Errc> found;
    for (std::uint64_t id = 1; id <= 30 && write(id); ++id) found.push_back(left().next().error);
    return found;
  };
  const std::vector<Errc> first = codes();
  EXPECT_THAT(first, Contains(Errc::kCompletionFailed).Times(1));
  EXPECT_EQ(first.front(), Errc::kOk);
  EXPECT_EQ(first.back(), Errc::kFlushed);
  for (int i = 1; i < 100; ++i) ASSERT_EQ(codes(), first);
}

}  // namespace
}  // namespace rdmacomm
