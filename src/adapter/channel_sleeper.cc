#include "adapter/channel_sleeper.h"

#include <sys/eventfd.h>

#include "rdmacomm/errc.h"
#include "rdmacomm/result.h"
#include "verbs/call.h"

namespace rdmacomm {

Result<ChannelSleeper> ChannelSleeper::create(CompletionQueue& cq) {
  if (cq.fd() < 0) {
    return make_error(Errc::kNotSupported,
                      "cannot sleep on a completion queue made without a channel; make it with_channel, or busy-poll");
  }
  UniqueFd wake_fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (Status status = verbs::from_minus_one(wake_fd.get(), "create an eventfd to be woken by"); !status.ok()) {
    return status.error();
  }
  return ChannelSleeper(cq, std::move(wake_fd));
}

bool ChannelSleeper::arm() noexcept {
  if (armed_) return false;
  armed_ = cq_->arm().ok();
  if (!armed_) wake();
  return true;
}

void ChannelSleeper::wake() const noexcept {
  // Fails only when the counter is at its maximum; then it is readable, which is what is wanted.
  (void)eventfd_write(wake_fd_.get(), 1);
}

void ChannelSleeper::take_event() noexcept {
  armed_ = false;
  cq_->consume_events();
}

void ChannelSleeper::take_wake_up() const noexcept {
  eventfd_t count = 0;
  (void)eventfd_read(wake_fd_.get(), &count);  // non-blocking; nothing to take is fine
}

}  // namespace rdmacomm
