// EndPointCore's completions: the hot part. No allocation, log, string or system call, except to sleep and on errors.
#include "base/hot_inline.h"
#include "endpoint/endpoint_core.h"

namespace rdmacomm {
namespace {

// A busy wait reads the clock once per this number of polls, because reading it takes the time of an empty poll.
constexpr unsigned kPollsPerClock = 32;

/// Calls `wait` with room for one completion, and returns that completion.
template <typename Wait>
RDMACOMM_HOT_INLINE Result<Completion> one_by(const Wait& wait) {
  Completion one;
  const Result<std::span<Completion>> waited = wait(std::span<Completion>(&one, 1));
  if (!waited) return waited.error();
  return one;
}

}  // namespace

Polled EndPointCore::poll(std::span<Completion> out) noexcept {
  if (aside_) [[unlikely]] {
    if (served_elsewhere()) return {out.data(), 0, Errc::kWrongState};
    const std::span<Completion> kept = source_.take_kept(out);
    return {kept.data(), kept.size()};
  }
  return queue_->poll(out);
}

[[gnu::cold]] Error EndPointCore::not_waitable() const {
  return make_error(Errc::kWrongState,
                    "a thread of the session polls this endpoint and calls the hooks; the application can poll it only "
                    "in ThreadMode::kApplication");
}

[[gnu::cold]] Error EndPointCore::waited_in_vain() const {
  return make_error(Errc::kTimeout, "no completion in time on the endpoint to " + peer());
}

[[gnu::cold]] Error EndPointCore::queue_failed(Outcome failed) const {
  return make_error(failed.code(), "the completion queue of the endpoint to " + peer() + " has failed");
}

// Inlined into both callers, so that only the return lies between the end of a poll and the waiting caller.
RDMACOMM_HOT_INLINE Result<std::span<Completion>> EndPointCore::wait_on(CompletionQueue& queue,
                                                                        std::span<Completion> out, Deadline deadline) {
  for (unsigned polls = 1;; ++polls) {
    // Read before polling: if the peer has ended the endpoint, its completions are then in the queue already.
    const bool over = !alive();
    const Polled polled = over ? queue.poll(out) : queue.wait_step(out, deadline);
    if (!polled.empty()) return std::span(polled.begin(), polled.size());  // also those before a failure of the queue
    if (!polled) [[unlikely]]
      return queue_failed(polled.outcome());
    if (over) return why_over().error();
    if ((!queue.waiter().spins() || polls % kPollsPerClock == 0) && deadline.passed()) return waited_in_vain();
  }
}

Result<std::span<Completion>> EndPointCore::wait_aside(std::span<Completion> out) {
  if (served_elsewhere()) return not_waitable();
  return source_.take_kept(out);
}

[[gnu::cold]] Error EndPointCore::no_room() const {
  return make_error(Errc::kInvalidArgument, "wait() on the endpoint to " + peer() +
                                                " got an empty span; it needs room for at least one completion");
}

Result<std::span<Completion>> EndPointCore::wait(std::span<Completion> out, Deadline deadline) {
  if (out.empty()) [[unlikely]]
    return no_room();
  if (aside_) [[unlikely]]
    return wait_aside(out);
  return wait_on(*queue_, out, deadline);
}

Result<std::span<Completion>> EndPointCore::wait(ChannelCore& channel, std::span<Completion> out, Deadline deadline) {
  if (out.empty()) return no_room();
  const ChannelEntry* entry = entry_of(channel);
  if (entry != nullptr && entry->queue != queue_ && !entry->aside) return wait_on(*entry->queue, out, deadline);
  if (entry != nullptr && entry->source && entry->source->keeps_any()) return entry->source->take_kept(out);
  if (entry == nullptr) {
    return make_error(Errc::kWrongState,
                      "channel '" + channel.name() + "' does not belong to the endpoint to " + peer());
  }
  return make_error(Errc::kWrongState, "channel '" + channel.name() +
                                           "' has no completion queue that the application polls: set its " +
                                           "own_completion_queue, or wait for the whole endpoint");
}

Result<Completion> EndPointCore::Source::take_next(Deadline deadline) {
  CompletionQueue& queue = own_ == nullptr ? *endpoint_.queue_ : *own_->queue;
  return one_by([&](std::span<Completion> room) { return endpoint_.wait_on(queue, room, deadline); });
}

void EndPointCore::Source::note_kept(bool any) noexcept {
  if (own_ == nullptr) {
    endpoint_.aside_ = any;
  } else {
    own_->aside = any;
    own_->channel->note_kept(any);
  }
}

Result<Completion> EndPointCore::next(Deadline deadline) {
  return one_by([&](std::span<Completion> room) { return wait(room, deadline); });
}

Result<Completion> EndPointCore::next(ChannelCore& channel, Deadline deadline) {
  return one_by([&](std::span<Completion> room) { return wait(channel, room, deadline); });
}

WaitCounts EndPointCore::wait_counts() const noexcept {
  WaitCounts all = queue_->waiter().counts();
  for (const auto& entry : entries()) {
    if (entry->queue != queue_) all += entry->queue->waiter().counts();
  }
  return all;
}

WaitCounts EndPointCore::wait_counts(const ChannelCore& channel) const noexcept {
  const ChannelEntry* entry = entry_of(channel);
  return entry == nullptr ? WaitCounts() : entry->queue->waiter().counts();
}

Result<std::span<Completion>> EndPointCore::poll_before_sleep(std::span<Completion> out) {
  if (served_elsewhere()) return not_waitable();
  if (fd() < 0) {
    return make_error(Errc::kNotSupported,
                      "an endpoint has a descriptor to sleep on only in PollingMode::kEpoll; its polling mode is " +
                          std::string(to_text(queue_->mode())));
  }
  if (source_.keeps_any()) return source_.take_kept(out);
  Polled polled = queue_->wait_step_outside(out);
  // An end from now on makes fd() readable. If the endpoint had ended already, completions may have arrived after the
  // poll, so poll again.
  if (polled && polled.empty() && !alive()) {
    polled = queue_->poll(out);
    if (polled && polled.empty()) return why_over().error();
  }
  if (!polled && polled.empty()) return queue_failed(polled.outcome());
  return std::span(polled.begin(), polled.size());
}

// The public functions ------------------------------------------------------------------------------------------------

Polled EndPoint::poll(std::span<Completion> out) const noexcept {
  return object().poll(out);
}

Result<std::span<Completion>> EndPoint::wait(std::span<Completion> out, Deadline deadline) const {
  return object().wait(out, deadline);
}

Result<Completion> EndPoint::next(Deadline deadline) const {
  return object().next(deadline);
}

Result<std::span<Completion>> EndPoint::wait(RDMAChannel& channel, std::span<Completion> out, Deadline deadline) const {
  return object().wait(core_of(channel), out, deadline);
}

Result<Completion> EndPoint::next(RDMAChannel& channel, Deadline deadline) const {
  return object().next(core_of(channel), deadline);
}

Result<std::span<Completion>> EndPoint::poll_before_sleep(std::span<Completion> out) const {
  return object().poll_before_sleep(out);
}

}  // namespace rdmacomm
