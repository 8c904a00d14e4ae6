// Waiting for completions, by sleeping and by polling.
#include <gtest/gtest.h>

#include <atomic>

#include "channel/completion_waiter.h"
#include "contract/contract_test.h"
#include "support/polling_modes.h"

namespace rdmacomm::contract {
namespace {

using namespace std::chrono_literals;

class WaitingTest : public ContractTest, public ::testing::WithParamInterface<PollingMode> {
 protected:
  void SetUp() override { start({.with_event_channel = true}); }

  static std::unique_ptr<CompletionWaiter> waiter_of(const ChannelEnd& end) {
    return CompletionWaiter::create(GetParam(), *end.cq).value();
  }
  // Returns an empty completion with kTimeout if none arrives.
  static Completion wait_for_one(const ChannelEnd& end, CompletionWaiter& waiter, Deadline deadline) {
    Completion completion;
    const auto poll = [&] { return end.channel->poll({&completion, 1}).size() == 1; };
    while (!deadline.passed()) {
      if (waiter.step(poll, deadline)) return completion;
    }
    completion.error = Errc::kTimeout;
    return completion;
  }
};

// After a lost wake-up it would wait until the deadline.
TEST_P(WaitingTest, APingPongLosesNoWakeUp) {
  const int messages = static_cast<int>(rounds(1000));
  const Deadline deadline = Deadline::after(60s);
  const auto side = [&](const ChannelEnd& end, bool starts) {
    const auto waiter = waiter_of(end);
    if (starts && !end.channel->post_send({}, {.id = 1})) return false;
    int received = 0;
    int sent = 0;
    while (received < messages || sent < messages) {
      const Completion completion = wait_for_one(end, *waiter, deadline);
      if (!completion.ok()) {
        ADD_FAILURE() << completion.status().message();
        return false;
      }
      if (completion.operation != Operation::kRecv) {
        ++sent;
        continue;
      }
      ++received;
      if (!end.channel->post_recv(inbox(end))) return false;
      if ((!starts || received < messages) && !end.channel->post_send({}, {.id = 1})) return false;
    }
    return true;
  };
  for (const ChannelEnd* end : {&left(), &right()}) ASSERT_TRUE(end->channel->post_recv(inbox(*end)));
  bool left_ok = false;
  std::thread other([&] { left_ok = side(left(), true); });
  const bool right_ok = side(right(), false);
  other.join();
  EXPECT_TRUE(left_ok);
  EXPECT_TRUE(right_ok);
}

TEST_P(WaitingTest, AFlushWakesASleeper) {
  const auto waiter = waiter_of(left());
  ASSERT_TRUE(left().channel->post_recv(inbox(left()), {.id = 5}));
  std::thread other([&] { EXPECT_TRUE(left().channel->adapter().to_error().ok()); });
  const Completion completion = wait_for_one(left(), *waiter, Deadline::after(20s));
  other.join();
  EXPECT_EQ(completion.error, Errc::kFlushed);
  EXPECT_EQ(completion.id, 5U);
}

TEST_P(WaitingTest, WakeStopsAnIdleLoop) {
  const auto waiter = waiter_of(left());
  std::atomic<bool> stopped = false;
  std::thread other([&] {
    stopped = true;
    waiter->wake();
  });
  const Deadline deadline = Deadline::after(20s);
  while (!stopped && !deadline.passed()) {
    if (waiter->step([&] { return !left().quiet(); }, deadline)) break;
  }
  other.join();
  EXPECT_FALSE(deadline.passed());
}

INSTANTIATE_TEST_SUITE_P(Modes, WaitingTest, testing::every_polling_mode(),
                         [](const auto& param) { return testing::instance_name(param.param); });

}  // namespace
}  // namespace rdmacomm::contract
