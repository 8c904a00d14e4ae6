// async_events.h - the asynchronous events of an opened device.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <vector>

#include "contract/contract_test.h"

namespace rdmacomm::contract {

/// Takes a device's events without blocking, and acknowledges each at once.
class AsyncEvents {
 public:
  explicit AsyncEvents(const DeviceCore& device) : device_(device) {
    EXPECT_EQ(fcntl(device.context()->async_fd, F_SETFL, O_NONBLOCK), 0);
  }
  /// Waits for an event of type `wanted`; other events are kept. Returns false if none arrives before the deadline.
  [[nodiscard]] bool comes(ibv_event_type wanted, Deadline deadline = patience()) {
    return comes_one_of({wanted}, deadline);
  }
  [[nodiscard]] bool comes_one_of(const std::vector<ibv_event_type>& wanted, Deadline deadline = patience()) {
    for (;;) {
      ibv_async_event event{};
      while (device_.api().get_async_event(device_.context(), &event) == 0) {
        device_.api().ack_async_event(&event);
        seen_ += std::string(" ") + ibv_event_type_str(event.event_type);
        if (std::ranges::find(wanted, event.event_type) != wanted.end()) return true;
      }
      if (deadline.passed()) return false;
      pollfd waited{device_.context()->async_fd, POLLIN, 0};
      (void)::poll(&waited, 1, deadline.poll_timeout_ms());
    }
  }
  [[nodiscard]] const std::string& seen() const { return seen_; }

 private:
  const DeviceCore& device_;
  std::string seen_;
};

}  // namespace rdmacomm::contract
