#include "support/peer_loss.h"

#include <chrono>
#include <thread>

namespace rdmacomm::programs {

Status with_cause(const EndPoint& endpoint, Status failure) {
  constexpr std::chrono::milliseconds kPatience{500};
  if (failure.ok() || failure.code() == Errc::kPeerLost || failure.code() == Errc::kPeerRefused) return failure;
  if (failure.code() == std::errc::io_error) return failure;
  const Deadline deadline = Deadline::after(kPatience);
  while (endpoint.alive() && !deadline.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return endpoint.alive() ? failure : endpoint.status();
}

}  // namespace rdmacomm::programs
