// soft_xrcd.h - XRC domains: the groups of XRC queue pairs and shared receive queues that work together.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>

#include "base/unique_fd.h"
#include "softdev/queues/soft_cq.h"
#include "softdev/shared/control_protocol.h"
#include "softdev/shared/shared_file.h"

namespace rdmacomm::softdev {

/// An opened XRC domain. A domain of an inode is shared by all contexts and processes that open it. Each open binds a
/// socket to an abstract name, like block_socket_name(). So the system's list of sockets shows if the domain exists,
/// and a process that dies closes its domains.
/// Threads: any.
class SoftXrcd : public ibv_xrcd {
 public:
  SoftXrcd(const Premises& premises, SharedBlock block);
  SoftXrcd(const SoftXrcd&) = delete;
  SoftXrcd& operator=(const SoftXrcd&) = delete;

  [[nodiscard]] static SoftXrcd& from(ibv_xrcd* xrcd) noexcept { return *static_cast<SoftXrcd*>(xrcd); }

  /// Finds or creates the domain of the file behind `fd`; -1: a new private one. Returns 0, or an errno value.
  [[nodiscard]] int enter(int fd, int flags);
  /// The context is closed while this object still exists.
  void detach_context() noexcept;
  [[nodiscard]] const XrcIdentity& identity() const noexcept { return identity_; }
  /// A completion queue for queue pairs that have none.
  [[nodiscard]] SoftCq& nowhere() noexcept { return nowhere_; }

  std::atomic<int> users{0};  ///< number of queue pairs and shared receive queues

 private:
  SharedFile& segment_;
  XrcIdentity identity_;
  UniqueFd file_;    // keeps the inode's number from being reused for another file
  UniqueFd marker_;  // its name shows that the domain exists
  SoftCq nowhere_;
};

}  // namespace rdmacomm::softdev
