// descriptor_set.h - waits for many descriptors by one, and does what is to be done for those that are ready.
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
  /// Is called by wait(), on its thread, with the events of epoll_ctl(2) that have come. Must not throw. Where it does
  /// not take what made its descriptor ready, it is called again by the next wait().
  using Function = std::function<void(std::uint32_t events)>;

  /// An error of the system's: too many open files.
  [[nodiscard]] static Result<std::unique_ptr<DescriptorSet>> create();
  DescriptorSet(const DescriptorSet&) = delete;
  DescriptorSet& operator=(const DescriptorSet&) = delete;

  /// Waits for `fd`, too, until remove(fd). It stays the caller's, who closes it after that.
  ///
  /// events   EPOLLIN, EPOLLOUT, ... of epoll_ctl(2)
  /// Returns  std::errc::file_exists: it is in the set already; or what else epoll_ctl(2) says
  [[nodiscard]] Status add(int fd, std::uint32_t events, Function function);
  /// Without effect where it is not in the set. A call of its function that has begun on another thread may go on for a
  /// moment; no other will begin.
  void remove(int fd) noexcept;

  /// Waits until at least one descriptor is ready, or until the deadline, and calls the functions of those that are. A
  /// signal may end it early.
  void wait(Deadline deadline) noexcept;

  /// Readable while a descriptor of the set is ready: to put the set under another epoll(7), poll(2), or a set.
  [[nodiscard]] int fd() const noexcept { return epoll_.get(); }

 private:
  struct Entry {
    int fd;
    Function function;
  };

  explicit DescriptorSet(UniqueFd epoll) : epoll_(std::move(epoll)) {}
  [[nodiscard]] std::shared_ptr<const Entry> find(std::uint64_t id) const noexcept;

  const UniqueFd epoll_;
  mutable std::mutex mutex_;  // guards what follows
  std::uint64_t last_id_ = 0;
  std::unordered_map<std::uint64_t, std::shared_ptr<const Entry>> entries_;
};

}  // namespace rdmacomm
