#include "channel/waiters.h"

#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>

#include <array>

#include "base/spin_lock.h"

namespace rdmacomm {
namespace {

// The clock is read only once per this number of polls, because reading it takes the time of an empty poll.
constexpr std::uint32_t kPollsPerClock = 32;

// If more threads spin than there are cores, the thread that would cause the completion may be waiting for this core.
// An occasional yield lets it run. With enough cores the cost of the yield is not measurable.
void spin_once(std::uint64_t empty_polls, std::uint32_t yield_every) noexcept {
  pause_core();
  if (yield_every != 0 && empty_polls % yield_every == 0) sched_yield();
}

// Sleeps on the completion channel and on wake(). Returns the time asleep.
std::chrono::nanoseconds sleep_on(ChannelSleeper& sleeper, Deadline deadline) noexcept {
  const auto start = Deadline::Clock::now();
  std::array<pollfd, 2> fds{pollfd{sleeper.channel_fd(), POLLIN, 0}, pollfd{sleeper.wake_fd(), POLLIN, 0}};
  const int ready = ::poll(fds.data(), fds.size(), deadline.poll_timeout_ms());
  const auto time = Deadline::Clock::now() - start;
  if (ready <= 0) return time;  // timeout, or a signal: allowed
  if (fds[0].revents != 0) sleeper.take_event();
  if (fds[1].revents != 0) sleeper.take_wake_up();
  return time;
}

}  // namespace

// Busy poll -----------------------------------------------------------------------------------------------------------

void BusyPollWaiter::wait(Deadline /*deadline*/) noexcept {
  spin_once(empty_polls(), yield_every_);
}

// Completion channel --------------------------------------------------------------------------------------------------

void ChannelWaiter::wait(Deadline deadline) noexcept {
  note_sleep(sleep_on(sleeper_, deadline));
}

// Epoll ---------------------------------------------------------------------------------------------------------------

Status EpollWaiter::open() {
  Status added = descriptors_->add(sleeper_.channel_fd(), EPOLLIN, [this](std::uint32_t) { sleeper_.take_event(); });
  if (!added) return added;
  return descriptors_->add(sleeper_.wake_fd(), EPOLLIN, [this](std::uint32_t) { sleeper_.take_wake_up(); });
}

void EpollWaiter::wait(Deadline deadline) noexcept {
  const auto start = Deadline::Clock::now();
  descriptors_->wait(deadline);
  note_sleep(Deadline::Clock::now() - start);
}

// Adaptive ------------------------------------------------------------------------------------------------------------

// Whether the time for spinning in this wait is not used up. A wait begins when the queue has become empty.
bool AdaptiveWaiter::may_spin() noexcept {
  if (begins()) {
    spin_until_ = Deadline::Clock::now() + options_.spin;
    return options_.spin.count() > 0;
  }
  return spins() && (empty_polls() % kPollsPerClock != 0 || Deadline::Clock::now() < spin_until_);
}

bool AdaptiveWaiter::get_ready() noexcept {
  note_spins(may_spin());
  return !spins() && sleeper_.arm();
}

void AdaptiveWaiter::wait(Deadline deadline) noexcept {
  if (spins()) return spin_once(empty_polls(), options_.yield_every);
  note_sleep(sleep_on(sleeper_, deadline));
}

}  // namespace rdmacomm
