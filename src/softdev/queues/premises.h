// premises.h - what queues use of the context that they belong to.
#pragma once

#include <infiniband/verbs.h>

#include "base/unique_fd.h"
#include "softdev/host/target_route.h"

namespace rdmacomm::softdev {

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

  /// Starts them, if they do not run. 0, or an errno value.
  [[nodiscard]] virtual int start() = 0;
  /// A request waits now, or can stop waiting. Cheap if the thread is awake.
  virtual void wake_retrier() = 0;
  /// Answers other processes at `listener` from now on.
  virtual void serve(UniqueFd listener) = 0;
};

/// The parts of a context that its queues use. Lives as long as the last of them, as do the parts.
struct Premises {
  ibv_context& verbs;
  const DeviceIdentity& identity;
  const TcpUse tcp_use;
  const bool late;      ///< requests wait for a poll before they are carried out, see kLateVariable
  SharedFile& segment;  ///< of queues, which peers map
  const LocalPremises& local;
  MemoryWindows& windows;
  Stragglers& stragglers;
  EventQueue& events;
  PortWatch& port;
  QueuePairs& queue_pairs;
  TcpService& tcp;
  DeviceThreads& threads;
};

}  // namespace rdmacomm::softdev
