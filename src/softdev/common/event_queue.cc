#include "softdev/common/event_queue.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace rdmacomm::softdev {

int EventQueue::open() {
  waiting_count_.reset(eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE | EFD_NONBLOCK));
  fd_.reset(epoll_create1(EPOLL_CLOEXEC));
  if (!waiting_count_ || !fd_) return errno;
  epoll_event readable{};
  readable.events = EPOLLIN;
  return epoll_ctl(fd_.get(), EPOLL_CTL_ADD, waiting_count_.get(), &readable) == 0 ? 0 : errno;
}

void EventQueue::push(const ibv_async_event& event, EventSource& source) {
  const std::scoped_lock lock(mutex_);
  if (source.retired) return;
  waiting_.push_back({event, &source});
  const std::uint64_t one = 1;
  (void)!write(waiting_count_.get(), &one, sizeof(one));
}

bool EventQueue::take(ibv_async_event& event) {
  const std::scoped_lock lock(mutex_);
  if (waiting_.empty()) return false;
  count_down(1);
  event = waiting_.front().event;
  ++waiting_.front().source->taken;
  waiting_.pop_front();
  return true;
}

void EventQueue::count_down(std::size_t events) noexcept {
  std::uint64_t one = 0;
  for (; events != 0; --events) (void)!read(waiting_count_.get(), &one, sizeof(one));
}

int EventQueue::wait() const {
  if ((fcntl(fd_.get(), F_GETFL) & O_NONBLOCK) != 0) {
    errno = EAGAIN;
    return -1;
  }
  // Not epoll_wait(2), which does not resume after signals without a handler, see signal(7). ppoll(2) is a cancellation
  // point also for programs under softdev-run, see preload/uncancellable.cc.
  pollfd readable{fd_.get(), POLLIN, 0};
  return ppoll(&readable, 1, nullptr, nullptr) < 0 ? -1 : 0;
}

void EventQueue::acknowledge(EventSource& source) {
  const std::scoped_lock lock(mutex_);
  ++source.acknowledged;
  acknowledged_.notify_all();
}

void EventQueue::retire(EventSource& source) {
  std::unique_lock lock(mutex_);
  source.retired = true;
  count_down(std::erase_if(waiting_, [&source](const Waiting& waiting) { return waiting.source == &source; }));
  acknowledged_.wait(lock, [&source] { return source.acknowledged == source.taken; });
}

}  // namespace rdmacomm::softdev
