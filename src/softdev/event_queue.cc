#include "softdev/event_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "softdev/soft_qp.h"

namespace rdmacomm::softdev {

int EventQueue::open() {
  fd_.reset(eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE));
  return fd_ ? 0 : errno;
}

void EventQueue::push(ibv_event_type type, SoftQp& qp) {
  const std::scoped_lock lock(mutex_);
  if (qp.events_retired) return;
  ibv_async_event event{};
  event.event_type = type;
  event.element.qp = qp.verbs();
  waiting_.push_back(event);
  const std::uint64_t one = 1;
  (void)!write(fd_.get(), &one, sizeof(one));
}

int EventQueue::get(ibv_async_event& event) {
  for (;;) {
    std::uint64_t one = 0;
    if (read(fd_.get(), &one, sizeof(one)) != sizeof(one)) return -1;
    const std::scoped_lock lock(mutex_);
    if (waiting_.empty()) continue;  // its queue pair was destroyed since
    event = waiting_.front();
    waiting_.pop_front();
    ++SoftQp::from(event.element.qp).events_taken;
    return 0;
  }
}

void EventQueue::acknowledge(const ibv_async_event& event) {
  const std::scoped_lock lock(mutex_);
  ++event.element.qp->events_completed;
  acknowledged_.notify_all();
}

void EventQueue::retire(SoftQp& qp) {
  std::unique_lock lock(mutex_);
  qp.events_retired = true;
  std::erase_if(waiting_, [&qp](const ibv_async_event& event) { return event.element.qp == qp.verbs(); });
  acknowledged_.wait(lock, [&qp] { return qp.qp_base.events_completed == qp.events_taken; });
}

}  // namespace rdmacomm::softdev
