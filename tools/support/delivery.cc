#include "support/delivery.h"

#include <algorithm>

namespace rdmacomm::programs {

void Delivery::put(const EndPoint& endpoint, const Completion& completion) {
  const std::lock_guard lock(mutex_);
  inboxes_[&endpoint].completions.push_back(completion);
  changed_.notify_all();
}

void Delivery::end(const EndPoint& endpoint) {
  const std::lock_guard lock(mutex_);
  inboxes_[&endpoint].ended = true;
  changed_.notify_all();
}

void Delivery::forget(const EndPoint& endpoint) {
  const std::lock_guard lock(mutex_);
  inboxes_.erase(&endpoint);
}

std::span<Completion> Delivery::take(Inbox& inbox, std::span<Completion> out) {
  const std::size_t count = std::min(out.size(), inbox.completions.size());
  const auto end = inbox.completions.begin() + static_cast<std::ptrdiff_t>(count);
  std::copy(inbox.completions.begin(), end, out.begin());
  inbox.completions.erase(inbox.completions.begin(), end);
  return out.first(count);
}

Polled Delivery::poll(EndPoint& endpoint, std::span<Completion> out) {
  if (!served(endpoint)) return endpoint.poll(out);
  const std::lock_guard lock(mutex_);
  const std::span<Completion> taken = take(inboxes_[&endpoint], out);
  return {taken.data(), taken.size()};
}

Result<std::span<Completion>> Delivery::wait(EndPoint& endpoint, std::span<Completion> out, Deadline deadline) {
  if (!served(endpoint)) return endpoint.wait(out, deadline);
  std::unique_lock lock(mutex_);
  Inbox& inbox = inboxes_[&endpoint];
  const auto over = [&] { return !inbox.completions.empty() || inbox.ended; };
  if (!changed_.wait_until(lock, deadline.time_point(), over)) {
    return make_error(Errc::kTimeout, "no completion in time on the endpoint to " + endpoint.peer());
  }
  const std::span<Completion> taken = take(inbox, out);
  if (!taken.empty()) return taken;
  if (const Status end = endpoint.status(); !end) return end.error();
  return make_error(Errc::kPeerLost, "the endpoint to " + endpoint.peer() + " has ended");
}

}  // namespace rdmacomm::programs
