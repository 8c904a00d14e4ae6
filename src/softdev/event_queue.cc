#include "softdev/event_queue.h"

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
  also_readable_with(waiting_count_.get());
  return 0;
}

void EventQueue::also_readable_with(int fd) {
  epoll_event readable{};
  readable.events = EPOLLIN;
  epoll_ctl(fd_.get(), EPOLL_CTL_ADD, fd, &readable);
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
  std::uint64_t one = 0;
  while (read(waiting_count_.get(), &one, sizeof(one)) == sizeof(one)) {
    if (waiting_.empty()) continue;  // what it was about was destroyed since
    event = waiting_.front().event;
    ++waiting_.front().source->taken;
    waiting_.pop_front();
    return true;
  }
  return false;
}

int EventQueue::wait() const {
  if ((fcntl(fd_.get(), F_GETFL) & O_NONBLOCK) != 0) {
    errno = EAGAIN;
    return -1;
  }
  // poll(2), as it goes on after signals that have no handler; epoll_wait(2) does not, see signal(7).
  pollfd readable{fd_.get(), POLLIN, 0};
  return poll(&readable, 1, -1) < 0 ? -1 : 0;
}

void EventQueue::acknowledge(EventSource& source) {
  const std::scoped_lock lock(mutex_);
  ++source.acknowledged;
  acknowledged_.notify_all();
}

void EventQueue::retire(EventSource& source) {
  std::unique_lock lock(mutex_);
  source.retired = true;
  std::erase_if(waiting_, [&source](const Waiting& waiting) { return waiting.source == &source; });
  acknowledged_.wait(lock, [&source] { return source.acknowledged == source.taken; });
}

}  // namespace rdmacomm::softdev
