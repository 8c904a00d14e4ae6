// EndPoint's completions: the hot half. No allocation, log, string or system call but where it sleeps or fails.
#include <algorithm>
#include <array>

#include "base/hot_inline.h"
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

[[gnu::cold]] Status EndPoint::not_waitable() const {
  return make_error(Errc::kWrongState, "a thread of the session polls this endpoint and calls the hooks");
}

[[gnu::cold]] Status EndPoint::waited_in_vain() const {
  return make_error(Errc::kTimeout, "no completion in time on the endpoint to " + peer());
}

[[gnu::cold]] Status EndPoint::queue_failed(std::error_code failed) const {
  return make_error(failed, "the completion queue of the endpoint to " + peer() + " has failed");
}

// Part of both callers: between the end of a poll and who waits there is nothing but the way back.
RDMACOMM_HOT_INLINE Status EndPoint::wait_on(CompletionGroup& group, std::span<Completion> out, std::size_t& count,
                                             Deadline deadline) {
  for (unsigned polls = 1;; ++polls) {
    // Asked before polling: what the peer did before it went is then in the queue already.
    const bool over = !alive();
    const std::error_code failed = over ? group.poll(out, count) : group.wait_step(out, count, deadline);
    if (failed) return queue_failed(failed);
    if (count > 0) return {};
    if (over) return why_over();
    if ((!group.waiter().spins() || polls % kPollsPerClock == 0) && deadline.passed()) {
      return waited_in_vain();
    }
  }
}

Status EndPoint::wait(std::span<Completion> out, std::size_t& count, Deadline deadline) {
  count = 0;
  if (served_elsewhere()) [[unlikely]]
    return not_waitable();
  return wait_on(*group_, out, count, deadline);
}

Status EndPoint::wait(RDMAChannel& channel, std::span<Completion> out, std::size_t& count, Deadline deadline) {
  count = 0;
  const Line* line = line_of(channel);
  if (line != nullptr && line->group != group_ && !line->served) return wait_on(*line->group, out, count, deadline);
  return make_error(Errc::kWrongState, "channel '" + channel.name() +
                                           "' has no completion queue that the application polls: set its " +
                                           "own_completion_queue, or wait without naming it");
}

WaitCounts EndPoint::wait_counts() const noexcept {
  WaitCounts all = group_->waiter().counts();
  for (const auto& line : lines()) {
    if (line->group != group_) all += line->group->waiter().counts();
  }
  return all;
}

WaitCounts EndPoint::wait_counts(const RDMAChannel& channel) const noexcept {
  const Line* line = line_of(channel);
  return line == nullptr ? WaitCounts() : line->group->waiter().counts();
}

Status EndPoint::poll_before_sleep(std::span<Completion> out, std::size_t& count) {
  count = 0;
  if (served_elsewhere()) [[unlikely]]
    return not_waitable();
  if (fd() < 0) {
    return make_error(Errc::kNotSupported,
                      "an endpoint has a descriptor to sleep on in PollingMode::kEpoll only, not by " +
                          std::string(to_text(group_->mode())));
  }
  if (const std::error_code failed = group_->wait_step_outside(out, count)) return queue_failed(failed);
  if (count > 0 || alive()) return {};  // who ends it from now on makes fd() readable
  // It was over before this was asked for, but perhaps not before the poll.
  if (const std::error_code failed = group_->poll(out, count)) return queue_failed(failed);
  return count > 0 ? Status() : why_over();
}

}  // namespace rdmacomm
