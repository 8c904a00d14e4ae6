#include "device/device_events.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "device/device_core.h"
#include "support/fake_verbs.h"

namespace rdmacomm {
namespace {

using rdmacomm::testing::FakeVerbs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Records the events that it gets, and how many were acknowledged at that time.
class Remembering final {
 public:
  explicit Remembering(const FakeVerbs& fake) : fake_(fake) {}
  void operator()(const DeviceEvent& event) {
    types.push_back(event.native_handle().event_type);
    failures.push_back(event.failure() ? *event.failure() : Error{});
    acknowledged_before.push_back(fake_.acknowledged_async.size());
  }
  std::vector<ibv_event_type> types;
  std::vector<Error> failures;
  std::vector<std::size_t> acknowledged_before;

 private:
  const FakeVerbs& fake_;
};

class DeviceEventsTest : public ::testing::Test {
 protected:
  void open() {
    auto opened = DeviceCore::open_from(FakeVerbs::api());
    ASSERT_TRUE(opened) << opened.error().message();
    device_ = std::move(*opened);
    auto subscribed = events().subscribe(std::ref(subscriber_));
    ASSERT_TRUE(subscribed) << subscribed.error().message();
    subscription_ = std::move(*subscribed);
  }
  DeviceEvents& events() { return device_->events(); }
  void raise(ibv_event_type type) {
    ibv_async_event event{};
    event.event_type = type;
    raise(event);
  }
  void raise(const ibv_async_event& event) { fake_.raise_async(device_->context(), event); }
  ibv_qp queue_pair() {
    ibv_qp qp{};
    qp.context = device_->context();
    qp.qp_num = 0x17;
    return qp;
  }

  FakeVerbs fake_;
  Remembering subscriber_{fake_};
  std::shared_ptr<DeviceCore> device_;
  DeviceEvents::Subscription subscription_;
};

TEST_F(DeviceEventsTest, AnEmptyFunctionIsRefused) {
  open();
  EXPECT_EQ(events().subscribe({}).code(), Errc::kInvalidArgument);
}

TEST_F(DeviceEventsTest, EachIsShownToAllAndAcknowledgedAfterThat) {
  open();
  Remembering other(fake_);
  auto others = events().subscribe(std::ref(other));
  ASSERT_TRUE(others);
  raise(IBV_EVENT_PORT_ACTIVE);
  raise(IBV_EVENT_SM_CHANGE);
  events().take();
  EXPECT_THAT(subscriber_.types, ElementsAre(IBV_EVENT_PORT_ACTIVE, IBV_EVENT_SM_CHANGE));
  EXPECT_EQ(other.types, subscriber_.types);
  EXPECT_THAT(subscriber_.acknowledged_before, ElementsAre(0, 1));
  EXPECT_EQ(fake_.acknowledged_async.size(), 2U);
  EXPECT_TRUE(events().health().ok());
}

TEST_F(DeviceEventsTest, ItIsReadableWhileOneWaitsAndTakingDoesNotBlock) {
  open();
  events().take();
  pollfd waited{events().fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&waited, 1, 0), 0);
  raise(IBV_EVENT_PORT_ACTIVE);
  EXPECT_EQ(::poll(&waited, 1, 0), 1);
  events().take();
  EXPECT_EQ(::poll(&waited, 1, 0), 0);
}

TEST_F(DeviceEventsTest, BeforeTheFirstSubscriptionTheDescriptorIsLeftAlone) {
  auto opened = DeviceCore::open_from(FakeVerbs::api());
  ASSERT_TRUE(opened);
  device_ = std::move(*opened);
  EXPECT_EQ(fcntl(events().fd(), F_GETFL) & O_NONBLOCK, 0);
  raise(IBV_EVENT_PORT_ACTIVE);
  events().take();
  EXPECT_THAT(fake_.acknowledged_async, IsEmpty());
}

TEST_F(DeviceEventsTest, AfterUnsubscribingNoEventsAreShown) {
  open();
  subscription_.reset();
  raise(IBV_EVENT_PORT_ACTIVE);
  events().take();
  EXPECT_THAT(subscriber_.types, IsEmpty());
  EXPECT_EQ(fake_.acknowledged_async.size(), 1U);
}

TEST_F(DeviceEventsTest, ASubscriptionThatIsMovedStaysOne) {
  open();
  DeviceEvents::Subscription moved(std::move(subscription_));
  subscription_ = std::move(moved);
  moved.reset();
  raise(IBV_EVENT_PORT_ACTIVE);
  events().take();
  EXPECT_EQ(subscriber_.types.size(), 1U);
}

TEST_F(DeviceEventsTest, AQueuePairThatFailedIsNamedWithTheCause) {
  open();
  ibv_qp qp = queue_pair();
  ibv_async_event event{};
  event.element.qp = &qp;
  for (const ibv_event_type type : {IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR}) {
    event.event_type = type;
    raise(event);
    events().take();
    EXPECT_EQ(subscriber_.failures.back().code, Errc::kLocalQueuePair);
    EXPECT_THAT(subscriber_.failures.back().context,
                AllOf(HasSubstr("queue pair 0x000017 of fake0 has failed"), HasSubstr(ibv_event_type_str(type))));
  }
  EXPECT_TRUE(events().health().ok());
}

/// siw reports QP_FATAL if the peer's device was removed. That concerns the connection; it is not a failure of the
/// local device.
TEST_F(DeviceEventsTest, OnIwarpAQueuePairsEndIsReportedByItsConnection) {
  open();
  ibv_qp qp = queue_pair();
  ibv_device* const device = qp.context->device;
  const ibv_transport_type before = std::exchange(device->transport_type, IBV_TRANSPORT_IWARP);
  ibv_async_event event{};
  event.element.qp = &qp;
  event.event_type = IBV_EVENT_QP_FATAL;
  raise(event);
  events().take();
  device->transport_type = before;
  EXPECT_EQ(subscriber_.types.back(), IBV_EVENT_QP_FATAL);
  EXPECT_FALSE(subscriber_.failures.back().code);
}

TEST_F(DeviceEventsTest, AFailedCompletionQueueIsReported) {
  open();
  ibv_cq cq{};
  cq.context = device_->context();
  ibv_async_event event{};
  event.event_type = IBV_EVENT_CQ_ERR;
  event.element.cq = &cq;
  raise(event);
  events().take();
  ASSERT_EQ(subscriber_.failures.size(), 1U);
  EXPECT_EQ(subscriber_.failures[0].code, Errc::kCompletionFailed);
  EXPECT_THAT(subscriber_.failures[0].context, HasSubstr("fake0"));
}

TEST_F(DeviceEventsTest, EventsOfOtherTypesEndNothing) {
  open();
  for (const ibv_event_type type : {IBV_EVENT_PORT_ERR, IBV_EVENT_GID_CHANGE, IBV_EVENT_COMM_EST,
                                    IBV_EVENT_SRQ_LIMIT_REACHED, IBV_EVENT_PATH_MIG, IBV_EVENT_SQ_DRAINED}) {
    raise(type);
    events().take();
    EXPECT_EQ(subscriber_.types.back(), type);
    EXPECT_FALSE(subscriber_.failures.back().code) << ibv_event_type_str(type);
  }
  EXPECT_TRUE(events().health().ok());
}

TEST_F(DeviceEventsTest, AFatalEventIsTheLast) {
  open();
  raise(IBV_EVENT_DEVICE_FATAL);
  raise(IBV_EVENT_PORT_ACTIVE);
  events().take();
  events().take();
  EXPECT_THAT(subscriber_.types, ElementsAre(IBV_EVENT_DEVICE_FATAL));
  EXPECT_EQ(subscriber_.failures[0].code, Errc::kDeviceLost);
  EXPECT_THAT(subscriber_.failures[0].context, HasSubstr("RDMA device fake0"));
  EXPECT_EQ(fake_.acknowledged_async.size(), 1U);
  EXPECT_EQ(events().health().code(), Errc::kDeviceLost);
}

TEST_F(DeviceEventsTest, EventsThatCannotBeReadAreALostDevice) {
  open();
  fake_.fail("get_async_event", EINTR);
  events().take();
  EXPECT_TRUE(events().health().ok());
  fake_.fail("get_async_event", EIO);
  events().take();
  EXPECT_THAT(subscriber_.types, ElementsAre(IBV_EVENT_DEVICE_FATAL));
  EXPECT_THAT(events().health().error().context, HasSubstr("Input/output error"));
}

TEST_F(DeviceEventsTest, ADeviceWhoseDirectoryIsGoneWasRemoved) {
  const std::filesystem::path directory =
      std::filesystem::path(::testing::TempDir()) / ("rdmacomm_events_" + std::to_string(getpid()));
  std::filesystem::create_directory(directory);
  std::snprintf(fake_.devices[0]->dev_path, sizeof(fake_.devices[0]->dev_path), "%s", directory.c_str());
  open();
  events().take();
  EXPECT_TRUE(events().health().ok());
  std::filesystem::remove(directory);
  events().take();
  events().take();
  EXPECT_THAT(subscriber_.types, ElementsAre(IBV_EVENT_DEVICE_FATAL));
  EXPECT_EQ(events().health().code(), Errc::kDeviceLost);
  EXPECT_THAT(events().health().error().context, AllOf(HasSubstr("fake0"), HasSubstr(directory.c_str())));
}

TEST_F(DeviceEventsTest, AnUnwatchableDescriptorIsAnError) {
  open();
  const int fd = device_->context()->async_fd;
  device_->context()->async_fd = -1;
  DeviceEvents again(FakeVerbs::api(), *device_->context());
  const auto subscribed = again.subscribe(std::ref(subscriber_));
  device_->context()->async_fd = fd;
  ASSERT_FALSE(subscribed);
  EXPECT_EQ(subscribed.code(), std::errc::bad_file_descriptor);
  EXPECT_THAT(subscribed.status().message(), HasSubstr("fake0"));
}

}  // namespace
}  // namespace rdmacomm
