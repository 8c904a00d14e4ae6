// device_faults.h - the faults of one opened device: its link, its end, its calls.
#pragma once

#include <infiniband/verbs.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "softdev/faults/fault_run.h"
#include "softdev/faults/later.h"
#include "softdev/faults/qp_faults.h"

namespace rdmacomm::softdev {

/// The parts of a context that faults change.
/// Threads: any.
class FaultyDevice {
 public:
  FaultyDevice() = default;
  FaultyDevice(const FaultyDevice&) = delete;
  FaultyDevice& operator=(const FaultyDevice&) = delete;
  virtual ~FaultyDevice() = default;

  /// Sends an event of all ports to the application. Takes no locks of queues.
  virtual void report_port(ibv_event_type type) noexcept = 0;
  /// Makes a completion queue overrun, if all completions of the queue pair that it has are polled. Takes locks of
  /// queues. Returns false: not yet.
  [[nodiscard]] virtual bool overrun(const ibv_cq* queue, const ibv_qp* queue_pair) noexcept = 0;
  /// Flushes all queue pairs, and then sends IBV_EVENT_DEVICE_FATAL to the application. Takes locks of queues.
  virtual void flush_and_report_failure() noexcept = 0;
};

/// The faults of one opened device. Knows nothing of queues: they ask it before they execute a request.
/// Threads: any, except start() and stop().
class DeviceFaults {
 public:
  /// name    of the device
  /// device  lives until stop()
  DeviceFaults(std::shared_ptr<FaultRun> run, std::string name, FaultyDevice& device);
  DeviceFaults(const DeviceFaults&) = delete;
  DeviceFaults& operator=(const DeviceFaults&) = delete;
  ~DeviceFaults() { stop(); }

  /// From now on the device may be changed. A link that is down already stays down.
  /// Returns  0, or an errno value.
  [[nodiscard]] int start();
  /// From now on the device is not changed any more. Continues the processes that freeze() has stopped.
  void stop();

  [[nodiscard]] FaultRun& run() noexcept { return *run_; }
  /// The faults of the next queue pair of the process; nullptr: it has none.
  [[nodiscard]] std::unique_ptr<QpFaults> of_next_queue_pair(FaultTransport transport);
  /// True if requests must ask link_is_down() before they are executed.
  [[nodiscard]] bool has_link_faults() const noexcept { return has_link_faults_; }
  /// True if completions of different queue pairs change places.
  [[nodiscard]] bool reorders() const noexcept { return reorders_; }
  /// Counts a call. Returns 0, or the errno value that the call fails with; EIO if the device has failed.
  [[nodiscard]] int refusal(FaultCall call);

  [[nodiscard]] bool link_is_down() const noexcept;
  /// Takes down the ports of this device for all contexts of the process. If they are down already, they stay down for
  /// at least this time.
  void take_link_down(std::chrono::microseconds time);
  void report_port(ibv_event_type type) noexcept { device_.report_port(type); }
  /// The device fails, on another thread. All calls fail from the time at which this returns.
  void fail_device();
  [[nodiscard]] bool has_failed() const noexcept { return has_failed_.load(std::memory_order_acquire); }
  /// Stops a process, and continues it after this time.
  /// process  this one, or another one of this user
  void freeze(pid_t process, std::chrono::microseconds time);
  /// Ends a process by SIGKILL. First reports how often the rules have applied, if it is this process.
  void kill(pid_t process);
  /// Makes a completion queue overrun, on another thread, once all completions of the queue pair that it has are polled.
  void overrun(const ibv_cq* queue, const ibv_qp* queue_pair);

 private:
  void lower_link(Later::Clock::time_point up_at);
  void raise_link();

  const std::shared_ptr<FaultRun> run_;
  const std::string name_;
  FaultyDevice& device_;
  const bool has_link_faults_;
  const bool reorders_;
  std::atomic<Later::Clock::rep> link_up_at_;
  std::atomic<bool> link_reported_down_{false};
  std::atomic<bool> has_failed_{false};
  Later later_;
};

}  // namespace rdmacomm::softdev
