// softdev.h - the software RDMA device: soft0.
// Layer: softdev.   How it works: docs/soft_device.md
#pragma once

#include "rdmacomm/version.h"

namespace rdmacomm::softdev {

/// The name of the software device.
inline constexpr const char* kDeviceName = "soft0";

/// The environment variable that makes soft0 late. Its value is in milliseconds, 1 to 60000; 0 or nothing: not late.
/// Contexts opened while it is set carry a request out not while it is posted, but when its completion is polled for,
/// one request a poll, or about that many milliseconds later where nobody polls. Programs that change a buffer, or read
/// what READ brings, before the completion is there then see what they may see on hardware. For tests; it costs
/// latency. With another value no device can be opened (EINVAL).
inline constexpr const char* kLateVariable = "RDMACOMM_SOFT0_LATE";

/// The environment variable that says which targets are reached by TCP and not through shared memory. "auto", or
/// nothing: those of other hosts (network namespaces), and of other users on this one. "tcp": all, for tests. "memory":
/// none; no port is opened then, and other hosts are EHOSTUNREACH. With another value no device can be opened (EINVAL).
inline constexpr const char* kTcpVariable = "RDMACOMM_SOFT0_WIRE";

/// The environment variable that says at which addresses of this host a process is reached by TCP: IPv4 and IPv6
/// addresses with commas between them. Nothing: at the addresses that its connected queue pairs use; a process with
/// datagram queue pairs at all, since their senders may be anywhere. A queue pair cannot be connected from another
/// address (EADDRNOTAVAIL). With anything else no device can be opened (EINVAL).
inline constexpr const char* kListenVariable = "RDMACOMM_SOFT0_LISTEN";

}  // namespace rdmacomm::softdev
