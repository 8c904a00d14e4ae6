// waiters.h - the implementations of CompletionWaiter. Private to the channel layer; CompletionWaiter::create() makes
// them.
#pragma once

#include <algorithm>

#include "channel/channel_sleeper.h"
#include "channel/completion_waiter.h"

namespace rdmacomm {

/// Number of polls at the start of a wait between which the core does not pause. A pause takes longer than a poll, so
/// completions that arrive within a round trip are found sooner without it. A wait that is longer than these polls (one
/// or two microseconds) is not noticeably longer with pauses, and the core's other hyper-thread runs faster.
[[nodiscard]] inline std::uint32_t bare_polls(const WaitOptions& options) noexcept {
  constexpr std::uint32_t kBarePolls = 64;
  return options.yield_every == 0 ? kBarePolls : std::min(kBarePolls, options.yield_every - 1);
}

/// Spins. The caller polls between two calls of wait(), so each call is one pause. wait() needs neither the clock nor a
/// flag, because it returns at once anyway, which is all that wake() and the deadline require.
class BusyPollWaiter final : public CompletionWaiter {
 public:
  explicit BusyPollWaiter(const WaitOptions& options)
      : CompletionWaiter(true, bare_polls(options)), yield_every_(options.yield_every) {}
  void wake() noexcept override {}

 protected:
  [[nodiscard]] bool get_ready() noexcept override { return false; }
  void wait(Deadline deadline) noexcept override;

 private:
  const std::uint32_t yield_every_;
};

/// Sleeps on the completion channel.
class ChannelWaiter final : public CompletionWaiter {
 public:
  explicit ChannelWaiter(ChannelSleeper sleeper) : CompletionWaiter(false), sleeper_(std::move(sleeper)) {}
  void wake() noexcept override { sleeper_.wake(); }

 protected:
  [[nodiscard]] bool get_ready() noexcept override { return sleeper_.arm(); }
  void wait(Deadline deadline) noexcept override;

 private:
  ChannelSleeper sleeper_;
};

/// Sleeps on an epoll descriptor that contains that of the completion channel and others.
class EpollWaiter final : public CompletionWaiter {
 public:
  EpollWaiter(ChannelSleeper sleeper, std::unique_ptr<DescriptorSet> descriptors)
      : CompletionWaiter(false), sleeper_(std::move(sleeper)), descriptors_(std::move(descriptors)) {}
  /// Adds its own descriptors to the set.
  [[nodiscard]] Status open();

  void wake() noexcept override { sleeper_.wake(); }
  [[nodiscard]] int fd() const noexcept override { return descriptors_->fd(); }
  [[nodiscard]] Status watch(int fd, std::uint32_t events, DescriptorSet::Function function) override {
    return descriptors_->add(fd, events, std::move(function));
  }
  void unwatch(int fd) noexcept override { descriptors_->remove(fd); }

 protected:
  [[nodiscard]] bool get_ready() noexcept override { return sleeper_.arm(); }
  void wait(Deadline deadline) noexcept override;
  void clear() noexcept override { descriptors_->wait(Deadline::after({})); }

 private:
  ChannelSleeper sleeper_;
  const std::unique_ptr<DescriptorSet> descriptors_;
};

/// Spins for a limited time when the queue has become empty, then sleeps until there may be completions.
class AdaptiveWaiter final : public CompletionWaiter {
 public:
  AdaptiveWaiter(const WaitOptions& options, ChannelSleeper sleeper)
      : CompletionWaiter(true, options.spin.count() > 0 ? bare_polls(options) : 0),
        options_(options),
        sleeper_(std::move(sleeper)) {}
  void wake() noexcept override { sleeper_.wake(); }

 protected:
  [[nodiscard]] bool get_ready() noexcept override;
  void wait(Deadline deadline) noexcept override;

 private:
  [[nodiscard]] bool may_spin() noexcept;

  const WaitOptions options_;
  ChannelSleeper sleeper_;
  Deadline::Clock::time_point spin_until_;
};

}  // namespace rdmacomm
