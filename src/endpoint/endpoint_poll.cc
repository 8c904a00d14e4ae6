// EndPoint's completions: the hot half. No allocation, log, string or system call but where it sleeps or fails.
#include <algorithm>
#include <array>

#include "rdmacomm/endpoint/endpoint.h"

namespace rdmacomm {
namespace {

constexpr std::size_t kBatch = 16;
// A busy wait looks at the clock this seldom: reading it costs as much as an empty poll.
constexpr unsigned kPollsPerClock = 32;

}  // namespace

std::error_code EndPoint::poll(std::span<Completion> out, std::size_t& count) noexcept {
  count = 0;
  if (served_elsewhere()) return Errc::kWrongState;
  return group_->poll(out, count);
}

std::error_code EndPoint::poll(CompletionHandler& handler, std::size_t& count, std::size_t limit) {
  count = 0;
  while (count < limit) {
    std::array<Completion, kBatch> batch;
    std::size_t got = 0;
    const std::size_t asked = std::min(kBatch, limit - count);
    const std::error_code failed = poll(std::span(batch).first(asked), got);
    for (std::size_t i = 0; i < got; ++i) handler.on_completion(batch[i]);
    count += got;
    if (failed) return failed;
    if (got < asked) return {};
  }
  return {};
}

Status EndPoint::wait(std::span<Completion> out, std::size_t& count, Deadline deadline) {
  count = 0;
  if (served_elsewhere()) {
    return make_error(Errc::kWrongState, "a thread of the session polls this endpoint and calls the hooks");
  }
  const bool sleeps = group_->mode() == PollingMode::kCompletionChannel;
  for (unsigned polls = 1;; ++polls) {
    // Asked before polling: what the peer did before it went is then in the queue already.
    const bool over = !alive();
    const std::error_code failed = over ? group_->poll(out, count) : group_->wait_step(out, count, deadline);
    if (failed) return make_error(failed, "the completion queue of the endpoint to " + peer() + " has failed");
    if (count > 0) return {};
    if (over) return why_over();
    if ((sleeps || polls % kPollsPerClock == 0) && deadline.passed()) {
      return make_error(Errc::kTimeout, "no completion in time on the endpoint to " + peer());
    }
  }
}

}  // namespace rdmacomm
