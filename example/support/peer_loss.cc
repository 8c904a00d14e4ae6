#include "support/peer_loss.h"

#include <chrono>
#include <thread>

namespace rdmacomm::programs {

Status with_cause(const EndPoint& endpoint, Status failure) {
  constexpr std::chrono::milliseconds kPatience{500};
  constexpr std::chrono::milliseconds kPatienceWithFlush{5000};
  if (failure.ok() || failure.code() == Errc::kPeerLost || failure.code() == Errc::kPeerRefused) return failure;
  if (failure.code() == std::errc::io_error) return failure;
  const Deadline deadline = Deadline::after(failure.code() == Errc::kFlushed ? kPatienceWithFlush : kPatience);
  while (endpoint.alive() && !deadline.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (!endpoint.alive()) return endpoint.status();
  return make_error(failure.code(), "with " + endpoint.peer() + ": " + failure.error().context);
}

}  // namespace rdmacomm::programs
