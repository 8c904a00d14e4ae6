#include "base/descriptor_set.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>

#include "base/system_call.h"

namespace rdmacomm {

Result<std::unique_ptr<DescriptorSet>> DescriptorSet::create() {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return make_error(last_system_error(), "cannot create an epoll descriptor; see `ulimit -n`");
  return std::unique_ptr<DescriptorSet>(new DescriptorSet(std::move(epoll)));
}

Status DescriptorSet::add(int fd, std::uint32_t events, Function function) {
  if (!function) {
    return make_error(Errc::kInvalidArgument, "descriptor " + std::to_string(fd) + " needs a function to call");
  }
  const std::lock_guard lock(mutex_);
  // The key is not `fd`: an event that epoll_wait() reported for a removed descriptor must not be delivered to a new
  // descriptor of the same number.
  const std::uint64_t id = ++last_id_;
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return make_error(last_system_error(), "cannot add descriptor " + std::to_string(fd) + " to epoll");
  }
  entries_.emplace(id, std::make_shared<const Entry>(Entry{fd, std::move(function)}));
  return {};
}

void DescriptorSet::remove(int fd) noexcept {
  std::shared_ptr<const Entry> removed;  // destroyed without the lock: its function may hold anything
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(entries_, [&](const auto& entry) { return entry.second->fd == fd; });
  if (found == entries_.end()) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);  // fails if `fd` is closed already: then it is out
  removed = std::move(found->second);
  entries_.erase(found);
}

void DescriptorSet::wait(Deadline deadline) noexcept {
  std::array<epoll_event, 32> events;  // further events come with the next call
  const int count =
      epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), deadline.poll_timeout_ms());
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (const auto entry = find(event.data.u64)) entry->function(event.events);
  }
}

std::shared_ptr<const DescriptorSet::Entry> DescriptorSet::find(std::uint64_t id) const noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : found->second;
}

}  // namespace rdmacomm
