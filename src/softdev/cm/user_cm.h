// user_cm.h - /dev/infiniband/rdma_cm: the kernel's interface to connection management, served in this process.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "softdev/host/soft_device.h"

namespace rdmacomm::softdev {

class CmFile;
class CmService;

/// The device node that librdmacm opens. A program writes commands to the descriptor: a header with a number and
/// lengths, a struct, and in it the address of a buffer for the answer. Source: Linux's include/uapi/rdma/rdma_user_cm.h,
/// version 4 of the interface, and drivers/infiniband/core/ucma.c.
///
/// A child made by fork() has the descriptors, too, but not the thread and the identifiers behind them: a write fails
/// there with EBADF. It can open the device itself.
/// Threads: any.
class UserCm {
 public:
  /// identities  the devices of the process, at least one, see CmDevices
  explicit UserCm(std::vector<DeviceIdentity> identities);
  explicit UserCm(DeviceIdentity identity);
  UserCm(const UserCm&) = delete;
  UserCm& operator=(const UserCm&) = delete;
  ~UserCm();

  /// As open(2): a new descriptor, or -1 and errno. EINVAL: a variable of the device has an invalid value.
  [[nodiscard]] int open(int flags) noexcept;
  /// As write(2), for a descriptor from open(), or a duplicate of it. Waits only for the next event, and only if the
  /// descriptor has no O_NONBLOCK.
  [[nodiscard]] ssize_t write(int fd, const void* command, std::size_t length);
  /// Before the last duplicate of a descriptor is closed: destroys all its identifiers.
  void closed(int fd) noexcept;

  /// Around fork(), in this order: in the parent before it, then in parent and child. A signal handler may fork, too:
  /// no handler runs in a thread that is in one of these functions, or between them.
  void before_fork() noexcept;
  void after_fork(bool is_child) noexcept;

 private:
  class Commands;
  void drop_unusable();
  void drop(const std::shared_ptr<CmFile>& file);
  [[nodiscard]] std::shared_ptr<CmFile> file_of(int fd) const;
  [[nodiscard]] std::shared_ptr<CmFile> locked_file_of(int fd);
  [[nodiscard]] int execute(int fd, const std::byte* command, std::size_t length);
  [[nodiscard]] int next_event(int fd, const std::byte* in, std::size_t length, std::size_t room);

  const std::vector<DeviceIdentity> identities_;
  std::mutex mutex_;  // guards the members below; taken before the service's
  std::unique_ptr<CmService> service_;
  std::vector<std::shared_ptr<CmFile>> files_;
  sigset_t signals_before_fork_{};
};

}  // namespace rdmacomm::softdev
