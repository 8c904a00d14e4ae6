// soft_xrcd.h - XRC domains: which XRC queue pairs reach which shared receive queues.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>

#include "base/unique_fd.h"
#include "softdev/queues/soft_cq.h"
#include "softdev/shared/control_protocol.h"
#include "softdev/shared/shared_file.h"

namespace rdmacomm::softdev {

/// An opened XRC domain. One that an inode stands for is the same in all contexts and processes that open it: each open
/// binds a socket with an abstract name, as block_socket_name() is one, so the system's list of them says whether the
/// domain exists, and who dies has it open no more.
/// Threads: any.
class SoftXrcd : public ibv_xrcd {
 public:
  SoftXrcd(const Premises& premises, SharedBlock block);
  SoftXrcd(const SoftXrcd&) = delete;
  SoftXrcd& operator=(const SoftXrcd&) = delete;

  [[nodiscard]] static SoftXrcd& from(ibv_xrcd* xrcd) noexcept { return *static_cast<SoftXrcd*>(xrcd); }

  /// Finds or makes the domain of the file behind `fd`, -1: one that nobody else has. 0, or an errno value.
  [[nodiscard]] int enter(int fd, int flags);
  /// The context is closed, and this is still there.
  void leave() noexcept;
  [[nodiscard]] const XrcIdentity& identity() const noexcept { return identity_; }
  /// Stands where a queue pair's completion queues are, for those that have none.
  [[nodiscard]] SoftCq& nowhere() noexcept { return nowhere_; }

  std::atomic<int> users{0};  ///< queue pairs, shared receive queues

 private:
  SharedFile& segment_;
  XrcIdentity identity_;
  UniqueFd file_;    // keeps the inode's number from being given to another file
  UniqueFd marker_;  // says that the domain exists
  SoftCq nowhere_;
};

}  // namespace rdmacomm::softdev
