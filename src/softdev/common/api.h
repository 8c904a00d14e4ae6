// api.h - soft0 as a table of verbs.
// Layer: softdev. Uses: base, verbs.   How it works: docs/soft_device.md
#pragma once

#include "rdmacomm/softdev.h"
#include "verbs/api.h"

namespace rdmacomm::softdev {

/// The Api of the software RDMA device. It needs no hardware, no root and no kernel module. Processes of one user on
/// one host (and in one network namespace) exchange data through shared memory, all others over TCP. The Api returns
/// real verbs objects: the inline verbs of <infiniband/verbs.h> (post, poll, arm) work on them unchanged.
/// Threads: as for the verbs. A context must not be used in a child after fork().
[[nodiscard]] const verbs::Api& api() noexcept;

}  // namespace rdmacomm::softdev
