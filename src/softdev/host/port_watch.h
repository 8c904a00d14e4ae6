// port_watch.h - what happens to the host's network, as events of the device's port.
#pragma once

#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "base/wake_event.h"
#include "softdev/common/event_queue.h"
#include "softdev/host/soft_device.h"

namespace rdmacomm::softdev {

/// Which of the host's interfaces are up. A port is up while any of them is, the loopback one too: processes of
/// this host reach each other by that.
class HostLinks {
 public:
  /// As they are now, of this thread's network namespace. 0, or an errno value: then it is as it was.
  [[nodiscard]] int read();
  [[nodiscard]] bool any_up() const noexcept { return !up_.empty(); }
  /// interface  its index
  /// flags      of netdevice(7); 0: it is gone
  void set(int interface, unsigned flags);

 private:
  std::set<int> up_;
};

/// Is told of changes by a netlink socket, and says which of them are events: a port that goes down with the last interface
/// or comes up with the first, a GID table that differs. A thread reads the socket. Most messages are no events, and
/// only a program can tell: so the socket itself cannot make the context's async_fd readable. The watch knows the GID
/// table, too, without asking for all addresses.
/// Threads: any.
class PortWatch {
 public:
  /// events  is told; lives until stop()
  explicit PortWatch(EventQueue& events) : events_(events) {}
  PortWatch(const PortWatch&) = delete;
  PortWatch& operator=(const PortWatch&) = delete;
  ~PortWatch() { stop(); }

  /// Watches this thread's network namespace from now on. 0, or an errno value: there will be no events.
  [[nodiscard]] int start(const DeviceIdentity& identity);
  /// Tells of nothing more.
  void stop() noexcept;
  /// Tells what has happened since the last time, without waiting for the thread.
  void look();
  /// The port's GID table as it is now; looks first. Returns  as gid_table(), also where the watch is not open
  /// Cost: one system call, but where something has changed: the kernel has said so before the change is done.
  [[nodiscard]] int gids(std::vector<ibv_gid_entry>& table);

 private:
  [[nodiscard]] int open(const DeviceIdentity& identity);
  void run();
  [[nodiscard]] bool is_behind();
  void read_messages();
  void take_links(HostLinks links);
  void take_gids(std::vector<ibv_gid_entry> gids);
  void tell(ibv_event_type type);

  EventQueue& events_;
  DeviceIdentity identity_;
  UniqueFd socket_;
  WakeEvent stop_;  ///< the thread is to end
  std::thread thread_;
  EventSource source_;  // never retired: nobody waits for acknowledgements
  std::mutex mutex_;    // guards what follows
  HostLinks links_;
  std::vector<ibv_gid_entry> gids_;
  bool old_links_ = false;  ///< they may be others now
  bool old_gids_ = false;
};

}  // namespace rdmacomm::softdev
