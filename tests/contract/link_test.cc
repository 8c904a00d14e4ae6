// The network interface is taken down, and the device is removed, while queue pairs are connected. These tests only run
// if RDMACOMM_TEST_MAY_BREAK_LINK names the interface below the device. They need root and a dedicated machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <thread>

#include "contract/async_events.h"

namespace rdmacomm::contract {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

std::string interface_name() {
  return environment("RDMACOMM_TEST_MAY_BREAK_LINK");
}

int run_hook(const std::string& arguments) {
  return std::system((RDMACOMM_LINK_HOOK " " + arguments).c_str());
}

/// A pair whose requests give up soon. Each test restores the link or the device that it breaks.
class LinkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (interface_name().empty()) GTEST_SKIP() << "RDMACOMM_TEST_MAY_BREAK_LINK does not name an interface";
    connect();
  }
  void connect(std::chrono::microseconds ack_timeout = 4ms) {
    disconnect();
    PairOptions options;
    options.left.ack_timeout = options.right.ack_timeout = ack_timeout;
    options.left.retry_count = options.right.retry_count = 6;
    auto made = LinkedPair::make(options);
    ASSERT_TRUE(made.has_value()) << made.error().message();
    pair_.emplace(std::move(*made));
    const Status linked = pair_->link();
    ASSERT_TRUE(linked.ok()) << linked.message();
    source_ = left().buffer(64);
    target_ = right().buffer(64);
  }
  /// Releases everything, so that the device can be removed.
  void disconnect() {
    source_ = {};
    target_ = {};
    pair_.reset();
  }
  [[nodiscard]] ChannelEnd& left() { return pair_->ends.left; }
  [[nodiscard]] ChannelEnd& right() { return pair_->ends.right; }

  Completion write() {
    EXPECT_TRUE(left().channel->post_write(source_.at(0), target_.remote_region(), {.id = 1}));
    return left().next();
  }
  void expect_writes_fail() {
    if (!has(kind_of(*left().device), Trait::kAcknowledges)) {
      EXPECT_TRUE(pair_->links.active->ends(patience()));
      EXPECT_TRUE(left().channel->post_write(source_.at(0), target_.remote_region(), {.id = 1}));
      return expect_last_words(left(), Fault::kLinkDown, 1);
    }
    Completion last = write();
    for (const Deadline deadline = patience(); last.ok() && !deadline.passed();) last = write();
    EXPECT_TRUE(codes_of(kind_of(*left().device), Fault::kLinkDown).contains(last.error)) << last.status().message();
  }
  void expect_drain_ends() {
    const Status drained = left().channel->drain(patience());
    EXPECT_TRUE(drained.ok()) << drained.message();
  }

  std::optional<LinkedPair> pair_;
  RDMABuffer source_;
  RDMABuffer target_;
};

class LinkDownTest : public LinkTest {
 protected:
  void TearDown() override {
    if (interface_name().empty()) return;
    EXPECT_EQ(run_hook("up " + interface_name()), 0);
  }
  void take_down() { ASSERT_EQ(run_hook("down " + interface_name()), 0); }
  static void expect_event(AsyncEvents& events, ibv_event_type wanted) {
    EXPECT_TRUE(events.comes(wanted)) << "came instead:" << events.seen();
  }
  void take_up() { ASSERT_EQ(run_hook("up " + interface_name()), 0); }
};

TEST_F(LinkDownTest, RequestsFailAndADrainEnds) {
  EXPECT_TRUE(write().ok());
  take_down();
  expect_writes_fail();
  expect_drain_ends();
}

// Any request may fail first, and with any error: not all devices fail a WRITE that waits for an answer.
TEST_F(LinkDownTest, TheFirstFailureNamesThePort) {
  ASSERT_TRUE(left().channel->post_recv(pair_->left_inbox.at(0), {.id = 7}));
  std::thread taking([this] { take_down(); });
  Completion first;
  for (const Deadline deadline = patience(); first.ok() && !deadline.passed();) {
    (void)left().channel->post_write(source_.at(0), target_.remote_region(), {.id = 1});
    first = left().next(Deadline::after(100ms));
    if (first.error == Errc::kTimeout) first.error = Errc::kOk;  // the device did not accept it any more
  }
  const std::string said = first.explain().message();
  taking.join();
  EXPECT_THAT(said, HasSubstr("failed: port "));
  EXPECT_THAT(said, HasSubstr(" is DOWN"));
}

TEST_F(LinkDownTest, TheDeviceReportsItAndWorksAgainLater) {
  AsyncEvents events(*left().device);
  take_down();
  const bool tells = has(kind_of(*left().device), Trait::kReportsPortState);
  if (tells) expect_event(events, IBV_EVENT_PORT_ERR);
  const auto opened = TestDevice::own().choice().open();
  EXPECT_EQ(opened.code(), Errc::kNoActivePort) << opened.status().message();
  take_up();
  if (tells) expect_event(events, IBV_EVENT_PORT_ACTIVE);
  connect(134ms);  // the addresses have to be resolved again
  const Completion written = write();
  EXPECT_TRUE(written.ok()) << written.status().message();
}

/// The kernel's software devices can be removed like a driver or a card.
class RemovalTest : public LinkTest {
 protected:
  void SetUp() override {
    if (links_by_cm()) GTEST_SKIP() << "librdmacm keeps the device open, and so in place, until this process ends";
    LinkTest::SetUp();
    if (!pair_) return;
    name_ = left().device->name();
    kind_ = kind_of(*left().device);
    if (!has(kind_, Trait::kManagedByRdmaLink)) GTEST_SKIP() << "property: not a device of `rdma link`";
  }
  void TearDown() override {
    disconnect();
    if (remover_.joinable()) remover_.join();
    if (name_.empty()) return;
    EXPECT_EQ(run_hook("restore " + name_ + " " + std::string(rdma_link_type(kind_)) + " " + interface_name()), 0);
  }
  /// Begins to remove the device, and waits until it can no longer be opened. The removal ends when the device is
  /// closed.
  void remove() {
    remover_ = std::thread([this] { EXPECT_EQ(run_hook("remove " + name_), 0); });
    const Deadline deadline = patience();
    while (TestDevice::own().why_not().empty() && !deadline.passed()) std::this_thread::yield();
    ASSERT_THAT(TestDevice::own().why_not(), HasSubstr(name_)) << "the removal has not begun";
  }

  std::string name_;
  DeviceKind kind_ = DeviceKind::kHardware;
  std::thread remover_;
};

TEST_F(RemovalTest, ADeviceInUseIsDrainedAndClosed) {
  EXPECT_TRUE(write().ok());
  ASSERT_TRUE(left().channel->post_recv(pair_->left_inbox.at(0), {.id = 7}));
  ASSERT_NO_FATAL_FAILURE(remove());
  ASSERT_TRUE(left().channel->post_write(source_.at(0), target_.remote_region(), {.id = 8}));
  expect_drain_ends();
  EXPECT_EQ(left().channel->outstanding_sends(), 0);
  EXPECT_EQ(left().channel->outstanding_recvs(), 0);
}

}  // namespace
}  // namespace rdmacomm::contract
