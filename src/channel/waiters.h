// waiters.h - the ways to wait. Private to the channel layer; made by CompletionWaiter::create().
#pragma once

#include <algorithm>

#include "channel/channel_sleeper.h"
#include "channel/completion_waiter.h"

namespace rdmacomm {

/// A pause takes longer than a poll. What comes within the time of a round trip is seen without; who waits longer than
/// these, a microsecond or two, does not feel it, and the core's other hyper-thread does.
[[nodiscard]] inline std::uint32_t bare_polls(const WaitOptions& options) noexcept {
  constexpr std::uint32_t kBarePolls = 64;
  return options.yield_every == 0 ? kBarePolls : std::min(kBarePolls, options.yield_every - 1);
}

/// Spins. The caller polls between two waits, so each of them is one pause: it needs neither the clock nor a flag,
/// since returning is all that wake() and the deadline can ask of it.
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

/// Sleeps on an epoll descriptor that has the completion channel's and others in it.
class EpollWaiter final : public CompletionWaiter {
 public:
  EpollWaiter(ChannelSleeper sleeper, std::unique_ptr<DescriptorSet> descriptors)
      : CompletionWaiter(false), sleeper_(std::move(sleeper)), descriptors_(std::move(descriptors)) {}
  /// Puts its own descriptors into the set.
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

/// Spins for a while each time that the queue has become empty, then sleeps until there is something.
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
