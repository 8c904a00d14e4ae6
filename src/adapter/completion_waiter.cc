#include "rdmacomm/adapter/completion_waiter.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>

#include <array>

#include "rdmacomm/verbs/call.h"

namespace rdmacomm {
namespace {

void pause_core() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins. The caller polls between two calls, so each wait() is one pause: it needs neither the clock nor a
// flag, since returning is all that wake() and the deadline can ask of it.
class BusyPollWaiter final : public CompletionWaiter {
 public:
  [[nodiscard]] bool prepare() noexcept override { return false; }
  void wait(Deadline /*deadline*/) noexcept override {
    pause_core();
    if (++waits_ % kYieldEvery == 0) sched_yield();
  }
  void wake() noexcept override {}

 private:
  // Where there are more spinning threads than cores, the one that would bring the completion may be waiting
  // for this core. A yield every few ten microseconds lets it run, and is lost in the noise where there are
  // cores enough.
  static constexpr unsigned kYieldEvery = 1024;
  unsigned waits_ = 0;
};

// Sleeps on the completion channel until the device or wake() makes a descriptor readable.
class ChannelWaiter final : public CompletionWaiter {
 public:
  ChannelWaiter(CompletionQueue& cq, UniqueFd wake_fd) : cq_(cq), wake_fd_(std::move(wake_fd)) {}

  [[nodiscard]] bool prepare() noexcept override {
    armed_ = !cq_.arm();
    return true;
  }

  void wait(Deadline deadline) noexcept override {
    if (!armed_) return;  // nobody would wake us: poll on instead
    std::array<pollfd, 2> fds{pollfd{cq_.fd(), POLLIN, 0}, pollfd{wake_fd_.get(), POLLIN, 0}};
    if (::poll(fds.data(), fds.size(), deadline.poll_timeout_ms()) <= 0) return;  // timeout, or a signal: allowed
    if (fds[0].revents != 0) cq_.consume_events();
    if (fds[1].revents != 0) take_wake_ups();
  }

  void wake() noexcept override {
    // Fails only when the counter is at its maximum; then it is readable, which is what is wanted.
    (void)eventfd_write(wake_fd_.get(), 1);
  }

 private:
  void take_wake_ups() noexcept {
    eventfd_t count = 0;
    (void)eventfd_read(wake_fd_.get(), &count);  // non-blocking; nothing to take is fine
  }

  CompletionQueue& cq_;
  UniqueFd wake_fd_;
  bool armed_ = false;
};

}  // namespace

Result<std::unique_ptr<CompletionWaiter>> CompletionWaiter::create(PollingMode mode, CompletionQueue& cq) {
  if (mode == PollingMode::kBusyPoll) return std::unique_ptr<CompletionWaiter>(new BusyPollWaiter);
  if (cq.fd() < 0) {
    return make_error(Errc::kNotSupported,
                      "cannot sleep on a completion queue made without a channel; make it with_channel, or busy-poll");
  }
  UniqueFd wake_fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (Status status = verbs::from_minus_one(wake_fd.get(), "create an eventfd to be woken by"); !status.ok()) {
    return status.error();
  }
  return std::unique_ptr<CompletionWaiter>(new ChannelWaiter(cq, std::move(wake_fd)));
}

}  // namespace rdmacomm
