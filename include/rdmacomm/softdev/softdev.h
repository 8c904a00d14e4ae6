// softdev.h - the software RDMA device: soft0.
// Layer: softdev. Uses: base, verbs.   How it works: docs/soft_device.md
#pragma once

#include "rdmacomm/verbs/api.h"

namespace rdmacomm::softdev {

/// The name of the software device.
inline constexpr const char* kDeviceName = "soft0";

/// The Api of the software RDMA device: no hardware, no root, no kernel module. Processes of one user on one
/// host (and in one network namespace) reach each other by it. It hands out genuine verbs objects: the inline
/// verbs of <infiniband/verbs.h> (post, poll, arm) work on them as they are.
/// Threads: as for the verbs. A context must not be used in a child after fork().
[[nodiscard]] const verbs::Api& api() noexcept;

}  // namespace rdmacomm::softdev
