#include "base/wake_event.h"

#include <gtest/gtest.h>
#include <poll.h>

namespace rdmacomm {
namespace {

bool readable(const WakeEvent& event) {
  pollfd waited{event.fd(), POLLIN, 0};
  return ::poll(&waited, 1, 0) == 1;
}

TEST(WakeEvent, IsReadableFromSignalToClear) {
  auto event = WakeEvent::create();
  ASSERT_TRUE(event) << event.status().message();
  EXPECT_FALSE(readable(*event));
  EXPECT_FALSE(event->clear());
  event->signal();
  event->signal();
  EXPECT_TRUE(readable(*event));
  EXPECT_TRUE(event->clear());
  EXPECT_FALSE(readable(*event));
}

TEST(WakeEvent, ADefaultConstructedEventIsEmpty) {
  EXPECT_LT(WakeEvent().fd(), 0);
}

}  // namespace
}  // namespace rdmacomm
