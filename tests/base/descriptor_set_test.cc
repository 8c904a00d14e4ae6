#include "base/descriptor_set.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <thread>
#include <vector>

namespace rdmacomm {
namespace {

using namespace std::chrono_literals;

Deadline at_once() {
  return Deadline::after({});
}

bool readable(int fd) {
  pollfd waiting{fd, POLLIN, 0};
  return ::poll(&waiting, 1, 0) == 1;
}

/// An eventfd that counts how often its function was called.
struct Bell {
  UniqueFd fd{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  int calls = 0;
  std::uint32_t events = 0;

  void ring() const { EXPECT_EQ(eventfd_write(fd.get(), 1), 0); }
  void clear() const {
    eventfd_t count = 0;
    EXPECT_EQ(eventfd_read(fd.get(), &count), 0);
  }
  DescriptorSet::Function function() {
    return [this](std::uint32_t come) {
      ++calls;
      events = come;
    };
  }
};

class DescriptorSetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto set = DescriptorSet::create();
    ASSERT_TRUE(set.has_value()) << set.status().message();
    set_ = std::move(*set);
  }
  void add(Bell& bell) { ASSERT_TRUE(set_->add(bell.fd.get(), EPOLLIN, bell.function()).ok()); }

  std::unique_ptr<DescriptorSet> set_;
};

TEST_F(DescriptorSetTest, CallsTheFunctionsOfReadyDescriptorsOnly) {
  std::vector<Bell> bells(40);
  for (Bell& bell : bells) add(bell);
  bells[3].ring();
  bells[39].ring();
  set_->wait(Deadline::never());
  for (const Bell& bell : bells) EXPECT_EQ(bell.calls, &bell == &bells[3] || &bell == &bells[39] ? 1 : 0);
  EXPECT_EQ(bells[3].events, static_cast<std::uint32_t>(EPOLLIN));
}

TEST_F(DescriptorSetTest, DescriptorsBeyondOneCallAreReportedByTheNext) {
  std::vector<Bell> bells(100);
  for (Bell& bell : bells) add(bell);
  for (const Bell& bell : bells) bell.ring();
  for (int i = 0; i < 8; ++i) set_->wait(at_once());
  for (const Bell& bell : bells) EXPECT_GE(bell.calls, 1);
}

TEST_F(DescriptorSetTest, WaitsUntilItsDeadline) {
  Bell bell;
  add(bell);
  const auto start = Deadline::Clock::now();
  set_->wait(Deadline::after(20ms));
  EXPECT_GE(Deadline::Clock::now() - start, 20ms);
  EXPECT_EQ(bell.calls, 0);
}

TEST_F(DescriptorSetTest, AnEventThatIsNotConsumedIsReportedAgain) {
  Bell bell;
  add(bell);
  bell.ring();
  set_->wait(at_once());
  set_->wait(at_once());
  EXPECT_EQ(bell.calls, 2);
  bell.clear();
  set_->wait(at_once());
  EXPECT_EQ(bell.calls, 2);
}

TEST_F(DescriptorSetTest, ItsDescriptorIsReadableWhileAMemberIsReadable) {
  Bell bell;
  add(bell);
  EXPECT_FALSE(readable(set_->fd()));
  bell.ring();
  EXPECT_TRUE(readable(set_->fd()));
  bell.clear();
  EXPECT_FALSE(readable(set_->fd()));
}

TEST_F(DescriptorSetTest, ASetMayBeInASet) {
  auto outer = DescriptorSet::create();
  ASSERT_TRUE(outer.has_value());
  Bell bell;
  add(bell);
  ASSERT_TRUE((*outer)->add(set_->fd(), EPOLLIN, [&](std::uint32_t) { set_->wait(at_once()); }).ok());
  bell.ring();
  (*outer)->wait(Deadline::never());
  EXPECT_EQ(bell.calls, 1);
}

TEST_F(DescriptorSetTest, ADescriptorCannotBeAddedTwice) {
  Bell bell;
  add(bell);
  const Status twice = set_->add(bell.fd.get(), EPOLLIN, bell.function());
  EXPECT_EQ(twice.code(), std::errc::file_exists);
  EXPECT_EQ(set_->add(-1, EPOLLIN, bell.function()).code(), std::errc::bad_file_descriptor);
}

TEST_F(DescriptorSetTest, ARemovedFunctionIsNotCalled) {
  Bell bell;
  add(bell);
  bell.ring();
  set_->remove(bell.fd.get());
  set_->remove(bell.fd.get());
  set_->wait(at_once());
  EXPECT_EQ(bell.calls, 0);
  add(bell);
  set_->wait(at_once());
  EXPECT_EQ(bell.calls, 1);
}

TEST_F(DescriptorSetTest, AFunctionMayRemoveItselfAndOthers) {
  Bell first;
  Bell second;
  int calls = 0;
  const auto remove_both = [&](std::uint32_t) {
    ++calls;
    set_->remove(first.fd.get());
    set_->remove(second.fd.get());
  };
  for (const Bell* bell : {&first, &second}) {
    ASSERT_TRUE(set_->add(bell->fd.get(), EPOLLIN, remove_both).ok());
    bell->ring();
  }
  set_->wait(at_once());
  EXPECT_EQ(calls, 1);  // both were ready; the second one was removed before its call
}

TEST_F(DescriptorSetTest, ADescriptorAddedByAnotherThreadEndsTheWait) {
  Bell bell;
  bell.ring();
  std::thread adder([&] { add(bell); });
  set_->wait(Deadline::after(20s));
  adder.join();
  EXPECT_EQ(bell.calls, 1);
}

}  // namespace
}  // namespace rdmacomm
