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

void Delivery::take(Inbox& inbox, std::span<Completion> out, std::size_t& count) {
  count = std::min(out.size(), inbox.completions.size());
  const auto end = inbox.completions.begin() + static_cast<std::ptrdiff_t>(count);
  std::copy(inbox.completions.begin(), end, out.begin());
  inbox.completions.erase(inbox.completions.begin(), end);
}

std::error_code Delivery::poll(EndPoint& endpoint, std::span<Completion> out, std::size_t& count) {
  if (!served(endpoint)) return endpoint.poll(out, count);
  const std::lock_guard lock(mutex_);
  take(inboxes_[&endpoint], out, count);
  return {};
}

Status Delivery::wait(EndPoint& endpoint, std::span<Completion> out, std::size_t& count, Deadline deadline) {
  if (!served(endpoint)) return endpoint.wait(out, count, deadline);
  std::unique_lock lock(mutex_);
  Inbox& inbox = inboxes_[&endpoint];
  const auto over = [&] { return !inbox.completions.empty() || inbox.ended; };
  count = 0;
  if (!changed_.wait_until(lock, deadline.time_point(), over)) {
    return make_error(Errc::kTimeout, "no completion in time on the endpoint to " + endpoint.peer());
  }
  take(inbox, out, count);
  return count > 0 ? Status() : endpoint.status();
}

}  // namespace rdmacomm::programs
