// softdev.h - the software RDMA device: soft0.
// Layer: softdev.   How it works: docs/soft_device.md
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rdmacomm/result.h"
#include "rdmacomm/version.h"

/// The names of the software device and of the environment variables that change its behaviour, and its faults.
namespace rdmacomm::softdev {

/// The name of the software device.
inline constexpr const char* kDeviceName = "soft0";

/// The environment variable that delays soft0. Its value is in milliseconds, 1 to 60000; 0 or empty: no delay. It
/// applies to contexts that are opened while it is set. They do not execute a request when it is posted. They execute
/// it when its completion is polled for, one request for each poll, or after about this time if no thread polls. Some
/// programs change a buffer, or read the result of a READ, before the completion has arrived. With the delay they see
/// the effects that they may see on hardware. For tests; it costs latency. With any other value no device can be opened
/// (EINVAL).
inline constexpr const char* kLateVariable = "RDMACOMM_SOFT0_LATE";

/// The environment variable that decides which peers are reached by TCP instead of shared memory. "auto", or empty:
/// peers on other hosts (network namespaces), and of other users on this host. "tcp": all peers, for tests. "memory":
/// no peers; then no port is opened, and other hosts are unreachable (EHOSTUNREACH). With any other value no device can
/// be opened (EINVAL).
inline constexpr const char* kTcpVariable = "RDMACOMM_SOFT0_WIRE";

/// The environment variable that decides whether registered memory counts towards RLIMIT_MEMLOCK (`ulimit -l`), as it
/// does with a NIC. "on", or empty: it does, and a registration beyond the limit fails (ENOMEM), unless the process has
/// the capability CAP_IPC_LOCK. "off": there is no limit. With any other value no device can be opened (EINVAL).
inline constexpr const char* kMemlockVariable = "RDMACOMM_SOFT0_MEMLOCK";

/// The environment variable that makes one soft device for each network interface, for tests of programs that use several
/// devices (multi-rail). Its value is a list of at most 64 names of interfaces, separated by commas, each of them once:
/// "eth0,eth1". The devices are soft0, soft1 and so on. Each has the GIDs of its interface only, and its port is down
/// while the interface is down or does not exist. Then requests are retried, and fail after the time that the attributes
/// of their queue pair give (IBV_WC_RETRY_EXC_ERR). An empty name: this device has the addresses of all interfaces. Empty:
/// one device, soft0, with the addresses of all interfaces. With any other value no device can be opened (EINVAL). The
/// device list is read while it is set. softdev-run sets it (`--devices`).
inline constexpr const char* kInterfacesVariable = "RDMACOMM_SOFT0_INTERFACES";

/// The environment variable that lists the addresses of this host at which a process accepts TCP: IPv4 and IPv6
/// addresses, separated by commas. Empty: the addresses that its connected queue pairs use. A process with datagram
/// queue pairs then accepts at all addresses, because their senders may be anywhere. If the variable is set, a queue
/// pair cannot be connected from an address that is not in the list (EADDRNOTAVAIL). With any other value no device can
/// be opened (EINVAL).
inline constexpr const char* kListenVariable = "RDMACOMM_SOFT0_LISTEN";

/// The environment variable with a plan of faults: errors, delays and failures that soft0 causes on purpose. Its language
/// is in docs/faults.md, for example "seed 42; at 100 fail RETRY_EXC_ERR". Empty: no faults. It applies to all contexts
/// of the process, and is read when the first one is opened. With an invalid plan no device can be opened (EINVAL).
inline constexpr const char* kFaultsVariable = "RDMACOMM_SOFT0_FAULTS";

/// How often one rule of a plan of faults has applied in this process. A value.
struct FaultCount {
  std::string rule;         ///< its text in the canonical form
  std::uint64_t times = 0;  ///< number of requests, completions or calls that it has changed
};

/// Gives the devices of this process a plan of faults, in place of that of kFaultsVariable. All counts and random streams
/// start again. For tests: the same plan with the same seed makes the same decisions again, see docs/faults.md.
///
/// The plan applies to contexts that are opened from now on. Contexts that are open keep their plan.
///
/// plan      in the language of docs/faults.md, at most 16,384 bytes. Without a seed, one is drawn; see faults().
///           Empty: no faults
/// Returns   std::errc::invalid_argument: the text is not a plan. The error names the place, the word there, and the
///           words that are possible. The old plan stays: correct the text and call again.
/// Threads   any
/// Cost      allocates memory; not for the hot path
[[nodiscard]] RDMACOMM_API Status set_faults(std::string_view plan);

/// The plan for contexts that are opened from now on, in one line that repeats the run: with its seed. Empty: no faults.
///
/// Threads   any
[[nodiscard]] RDMACOMM_API std::string faults();

/// How often each rule of that plan has applied, in the order of the plan. A rule that has never applied is included, so
/// that a test can notice it.
///
/// Threads   any
[[nodiscard]] RDMACOMM_API std::vector<FaultCount> fault_counts();

}  // namespace rdmacomm::softdev
