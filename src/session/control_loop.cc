#include "session/control_loop.h"

#include <sys/epoll.h>

#include <array>

#include "base/out_of_memory.h"
#include "base/start_thread.h"
#include "base/system_call.h"
#include "connector/socket.h"

namespace rdmacomm {
namespace {

constexpr std::chrono::milliseconds kShortageRest{100};

}  // namespace

Status ControlLoop::make_events() {
  for (WakeEvent* const event : {&stop_event_, &wake_event_}) {
    if (event->fd() >= 0) continue;
    auto made = WakeEvent::create();
    if (!made) return made.status();
    *event = std::move(*made);
  }
  return {};
}

Status ControlLoop::open() {
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return make_error(last_system_error(), "cannot create an epoll descriptor; see `ulimit -n`");
  return watch(wake_event_.fd(), EPOLLIN, kWake, "the wake event of the control thread");
}

Status ControlLoop::start(Work& work, InsideThreads& inside) {
  return start_thread(thread_, "rdma-control", [this, &work, &inside] {
    const InsideThreads::Guard guard(inside);
    run(work);
  });
}

Status ControlLoop::watch(int fd, std::uint32_t events, Id id, const std::string& what) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return make_error(last_system_error(), "cannot watch " + what);
}

void ControlLoop::unwatch(int fd) noexcept {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void ControlLoop::stop() noexcept {
  stopping_.store(true, std::memory_order_release);
  stop_event_.signal();
  wake_event_.signal();
}

void ControlLoop::join() {
  const std::lock_guard lock(join_mutex_);
  if (thread_.joinable()) thread_.join();
}

void ControlLoop::run(Work& work) {
  const auto stopping = [this] { return stopping_.load(std::memory_order_acquire); };
  std::array<epoll_event, 32> events{};
  while (!stopping()) {
    const Status taken = or_out_of_memory([&] {
      const Deadline again = work.take_turn();
      const int count =
          epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), again.poll_timeout_ms());
      for (int i = 0; i < count && !stopping(); ++i) {
        const Id id = events[static_cast<std::size_t>(i)].data.u64;
        if (id == kWake) {
          wake_event_.clear();
        } else {
          work.on_ready(id);
        }
      }
      return Status();
    });
    if (taken) continue;
    work.on_shortage(taken);
    (void)wait_for(-1, 0, stop_event_.fd(), Deadline::after(kShortageRest));
  }
  work.tear_down();
}

}  // namespace rdmacomm
