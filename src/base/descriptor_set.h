// descriptor_set.h - waits for many descriptors with one call, and calls the functions of the ready ones.
// Layer: base.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "base/unique_fd.h"
#include "rdmacomm/deadline.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

/// An epoll descriptor and a function for each descriptor in it. A resource: neither copyable nor movable.
/// Threads: add and remove from any, also from a function of the set; wait from one thread at a time.
class DescriptorSet {
 public:
  /// wait() calls it on its own thread with the events that epoll_wait(2) reported. Must not throw. If it does not
  /// consume the cause, the next wait() calls it again.
  using Function = std::function<void(std::uint32_t events)>;

  /// Errors: the system's, for example too many open files.
  [[nodiscard]] static Result<std::unique_ptr<DescriptorSet>> create();
  DescriptorSet(const DescriptorSet&) = delete;
  DescriptorSet& operator=(const DescriptorSet&) = delete;

  /// Also waits for `fd`, until remove(fd). The caller keeps `fd`, and closes it only after remove().
  ///
  /// events   EPOLLIN, EPOLLOUT, ... of epoll_ctl(2)
  /// Returns  std::errc::file_exists: it is in the set already; or another error of epoll_ctl(2)
  [[nodiscard]] Status add(int fd, std::uint32_t events, Function function);
  /// No effect if it is not in the set. If another thread has begun to call its function, that call may still run when
  /// this returns; no other call begins.
  void remove(int fd) noexcept;

  /// Waits until at least one descriptor is ready, or until the deadline, and calls the functions of the ready ones. A
  /// signal may end the wait early.
  void wait(Deadline deadline) noexcept;

  /// Readable while a descriptor of the set is ready. With it the set can be watched by another epoll(7), by poll(2),
  /// or by another set.
  [[nodiscard]] int fd() const noexcept { return epoll_.get(); }

 private:
  struct Entry {
    int fd;
    Function function;
  };

  explicit DescriptorSet(UniqueFd epoll) : epoll_(std::move(epoll)) {}
  [[nodiscard]] std::shared_ptr<const Entry> find(std::uint64_t id) const noexcept;

  const UniqueFd epoll_;
  mutable std::mutex mutex_;  // guards the members below
  std::uint64_t last_id_ = 0;
  std::unordered_map<std::uint64_t, std::shared_ptr<const Entry>> entries_;
};

}  // namespace rdmacomm
