#include "support/peer_loss.h"

#include <chrono>
#include <thread>

#include "rdmacomm/device.h"
#include "verbs/transport.h"

namespace rdmacomm::programs {
namespace {

/// Errors that a device may report when a connection ends, long before the reason is known.
bool may_be_ahead(const EndPoint& endpoint, std::error_code code) {
  if (code == Errc::kFlushed) return true;
  return code == Errc::kLocalQueuePair && verbs::fails_with_connection(*endpoint.device().native_handle());
}

}  // namespace

Status with_cause(const EndPoint& endpoint, Status failure) {
  constexpr std::chrono::milliseconds kPatience{500};
  constexpr std::chrono::milliseconds kLongPatience{5000};
  if (failure.ok() || failure.code() == Errc::kPeerLost || failure.code() == Errc::kPeerClosed ||
      failure.code() == Errc::kPeerRefused || failure.code() == Errc::kServerBusy) {
    return failure;
  }
  if (failure.code() == std::errc::io_error) return failure;
  const Deadline deadline = Deadline::after(may_be_ahead(endpoint, failure.code()) ? kLongPatience : kPatience);
  while (endpoint.alive() && !deadline.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (!endpoint.alive()) return endpoint.status();
  return make_error(failure.code(), "connection to " + endpoint.peer() + ": " + failure.error().context);
}

Status explained(const EndPoint& endpoint, Status failure) {
  const bool by_itself = failure.code() == Errc::kAborted || failure.code() == Errc::kBadMessage ||
                         failure.code() == Errc::kInvalidArgument ||
                         failure.code().category() == std::generic_category();
  return by_itself ? failure : with_cause(endpoint, std::move(failure));
}

}  // namespace rdmacomm::programs
