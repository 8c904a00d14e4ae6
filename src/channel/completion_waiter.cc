#include "channel/completion_waiter.h"

#include <utility>

#include "base/check_range.h"
#include "channel/waiters.h"

namespace rdmacomm {

const char* to_text(PollingMode mode) noexcept {
  switch (mode) {
    case PollingMode::kBusyPoll: return "busy poll";
    case PollingMode::kCompletionChannel: return "completion channel";
    case PollingMode::kEpoll: return "epoll";
    case PollingMode::kAdaptive: return "adaptive";
  }
  return "unknown";
}

Status WaitOptions::validate() const {
  return check_range("waiting.spin", spin.count(), {.low = 0, .high = kMaxSpin.count(), .unit = " us"});
}

Result<std::unique_ptr<CompletionWaiter>> CompletionWaiter::create(PollingMode mode, NativeQueue& cq,
                                                                   const WaitOptions& options) {
  if (Status valid = options.validate(); !valid) return valid.error();
  if (mode == PollingMode::kBusyPoll) return std::unique_ptr<CompletionWaiter>(new BusyPollWaiter(options));
  auto sleeper = ChannelSleeper::create(cq);
  if (!sleeper) return sleeper.error();
  if (mode == PollingMode::kCompletionChannel) {
    return std::unique_ptr<CompletionWaiter>(new ChannelWaiter(std::move(*sleeper)));
  }
  if (mode == PollingMode::kAdaptive) {
    return std::unique_ptr<CompletionWaiter>(new AdaptiveWaiter(options, std::move(*sleeper)));
  }
  auto descriptors = DescriptorSet::create();
  if (!descriptors) return descriptors.error();
  auto waiter = std::make_unique<EpollWaiter>(std::move(*sleeper), std::move(*descriptors));
  if (Status opened = waiter->open(); !opened) return opened.error();
  return std::unique_ptr<CompletionWaiter>(std::move(waiter));
}

Status CompletionWaiter::watch(int fd, std::uint32_t /*events*/, DescriptorSet::Function /*function*/) {
  return make_error(Errc::kNotSupported, "cannot also wait for descriptor " + std::to_string(fd) +
                                             ": only polling_mode kEpoll supports that");
}

void CompletionWaiter::note_sleep(std::chrono::nanoseconds time) noexcept {
  // Only one thread writes, so plain additions are enough.
  if (!std::exchange(has_slept_, true)) {
    slept_.store(slept_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  sleeps_.store(sleeps_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  asleep_ns_.store(asleep_ns_.load(std::memory_order_relaxed) + time.count(), std::memory_order_relaxed);
}

WaitCounts CompletionWaiter::counts() const noexcept {
  return {.waits = waits_.load(std::memory_order_relaxed),
          .slept = slept_.load(std::memory_order_relaxed),
          .sleeps = sleeps_.load(std::memory_order_relaxed),
          .asleep = std::chrono::nanoseconds(asleep_ns_.load(std::memory_order_relaxed))};
}

}  // namespace rdmacomm
