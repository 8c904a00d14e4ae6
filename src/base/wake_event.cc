#include "base/wake_event.h"

#include <sys/eventfd.h>

#include "base/system_call.h"

namespace rdmacomm {

Result<WakeEvent> WakeEvent::create() {
  UniqueFd fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) return make_error(last_system_error(), "cannot create an eventfd");
  return WakeEvent(std::move(fd));
}

void WakeEvent::signal() const noexcept {
  // Fails if the counter is at its maximum, and then it is signalled already; or if it has no eventfd.
  (void)eventfd_write(fd(), 1);
}

bool WakeEvent::clear() const noexcept {
  eventfd_t count = 0;
  return eventfd_read(fd(), &count) == 0;
}

}  // namespace rdmacomm
