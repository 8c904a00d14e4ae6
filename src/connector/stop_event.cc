#include "connector/stop_event.h"

#include <sys/eventfd.h>

#include <cstdint>

#include "verbs/call.h"

namespace rdmacomm {

Result<StopEvent> StopEvent::create() {
  UniqueFd fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) return verbs::from_minus_one(-1, "create an eventfd").error();
  return StopEvent(std::move(fd));
}

void StopEvent::signal() const noexcept {
  const std::uint64_t one = 1;
  // Fails only when the counter is at its maximum: then the event is signalled already.
  [[maybe_unused]] const ssize_t written = ::write(fd(), &one, sizeof(one));
}

void StopEvent::clear() const noexcept {
  std::uint64_t count = 0;
  // Fails only when there is nothing to clear.
  [[maybe_unused]] const ssize_t got = ::read(fd(), &count, sizeof(count));
}

}  // namespace rdmacomm
