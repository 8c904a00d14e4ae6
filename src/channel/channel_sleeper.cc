#include "channel/channel_sleeper.h"

#include "rdmacomm/errc.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

Result<ChannelSleeper> ChannelSleeper::create(NativeQueue& cq) {
  if (cq.fd() < 0) {
    return make_error(
        Errc::kNotSupported,
        "cannot sleep on a completion queue that has no completion channel; set with_channel, or busy-poll");
  }
  auto wake_event = WakeEvent::create();
  if (!wake_event) return wake_event.error();
  return ChannelSleeper(cq, std::move(*wake_event));
}

bool ChannelSleeper::arm() noexcept {
  if (armed_) return false;
  armed_ = cq_->arm().ok();
  if (!armed_) wake();
  return true;
}

void ChannelSleeper::take_event() noexcept {
  armed_ = false;
  cq_->consume_events();
}

}  // namespace rdmacomm
