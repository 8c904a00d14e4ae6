// premises.h - the parts of a context that its queues use.
#pragma once

#include <infiniband/verbs.h>

#include "base/unique_fd.h"
#include "softdev/host/target_route.h"

namespace rdmacomm::softdev {

class DeviceFaults;
class EventQueue;
class MemoryWindows;
class PortWatch;
class QueuePairs;
class SharedFile;
class Stragglers;
class TcpService;
struct DeviceIdentity;
struct LocalPremises;

/// The threads of a context, as its queues use them.
/// Threads: any.
class DeviceThreads {
 public:
  DeviceThreads() = default;
  DeviceThreads(const DeviceThreads&) = delete;
  DeviceThreads& operator=(const DeviceThreads&) = delete;
  virtual ~DeviceThreads() = default;

  /// Starts the threads, unless they run. Returns 0, or an errno value.
  [[nodiscard]] virtual int start() = 0;
  /// Call this when a request starts to wait, or may not have to wait any more. Cheap if the thread is awake.
  virtual void wake_retrier() = 0;
  /// From now on, answers other processes that connect to `listener`.
  virtual void serve(UniqueFd listener) = 0;
};

/// The parts of a context that its queues use. It and the parts outlive the last queue.
struct Premises {
  ibv_context& verbs;
  const DeviceIdentity& identity;
  const TcpUse tcp_use;
  const bool late;             ///< requests wait for a poll before they are executed, see kLateVariable
  DeviceFaults* const faults;  ///< nullptr: none
  SharedFile& segment;         ///< of queues; peers map it
  const LocalPremises& local;
  MemoryWindows& windows;
  Stragglers& stragglers;
  EventQueue& events;
  PortWatch& port;
  QueuePairs& queue_pairs;
  TcpService& tcp;
  DeviceThreads& threads;
};

/// True if multicast groups have members on other hosts, too.
[[nodiscard]] bool groups_span_hosts(const Premises& premises) noexcept;

}  // namespace rdmacomm::softdev
