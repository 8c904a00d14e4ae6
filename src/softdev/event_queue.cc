#include "softdev/event_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace rdmacomm::softdev {

int EventQueue::open() {
  fd_.reset(eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE));
  return fd_ ? 0 : errno;
}

void EventQueue::push(const ibv_async_event& event, EventSource& source) {
  const std::scoped_lock lock(mutex_);
  if (source.retired) return;
  waiting_.push_back({event, &source});
  const std::uint64_t one = 1;
  (void)!write(fd_.get(), &one, sizeof(one));
}

int EventQueue::get(ibv_async_event& event) {
  for (;;) {
    std::uint64_t one = 0;
    if (read(fd_.get(), &one, sizeof(one)) != sizeof(one)) return -1;
    const std::scoped_lock lock(mutex_);
    if (waiting_.empty()) continue;  // what it was about was destroyed since
    event = waiting_.front().event;
    ++waiting_.front().source->taken;
    waiting_.pop_front();
    return 0;
  }
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
