// port_watch.h - reports network changes of the host as events of the device port.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "base/wake_event.h"
#include "softdev/common/event_queue.h"
#include "softdev/host/soft_device.h"

namespace rdmacomm::softdev {

/// The host's interfaces that are up. A port is up while at least one of them is up. The loopback interface counts,
/// because processes of this host reach each other through it.
class HostLinks {
 public:
  /// Reads the current state in this thread's network namespace. Returns 0, or an errno value; then nothing has
  /// changed.
  [[nodiscard]] int read();
  [[nodiscard]] bool any_up() const noexcept { return !up_.empty(); }
  /// interface  its index
  /// flags      as in netdevice(7); 0: the interface was removed
  void set(int interface, unsigned flags);

 private:
  std::set<int> up_;
};

/// Receives changes of the network through a netlink socket and pushes the events: the port goes down with its last
/// interface, comes up with its first one, or has a different GID table. A thread reads the socket. The socket itself
/// cannot be the context's async_fd: most messages are no events, so a program has to interpret them. The watch also
/// caches the GID table, so that reading the table needs no list of all addresses. Threads: any.
class PortWatch {
 public:
  /// events  receives the events; must live until stop()
  explicit PortWatch(EventQueue& events) : events_(events) {}
  PortWatch(const PortWatch&) = delete;
  PortWatch& operator=(const PortWatch&) = delete;
  ~PortWatch() { stop(); }

  /// Watches this thread's network namespace from now on. Returns 0, or an errno value; then no event is ever pushed.
  [[nodiscard]] int start(const DeviceIdentity& identity);
  /// Ends the watch. After it returns, the thread pushes no more events.
  void stop() noexcept;
  /// Pushes the events since the last call, without waiting for the thread.
  void look();
  /// The port's current GID table. Calls look() first. Also works if the watch is not open.
  /// Returns  as gid_table().
  /// Cost: one system call if nothing has changed. The kernel reports a change before the call that makes the change
  /// returns.
  [[nodiscard]] int gids(std::vector<ibv_gid_entry>& table);
  /// Pushes an event of each port.
  void report(ibv_event_type type);
  /// Pushes IBV_EVENT_DEVICE_FATAL.
  void report_device_failure();

 private:
  [[nodiscard]] int open(const DeviceIdentity& identity);
  void run();
  [[nodiscard]] bool is_behind();
  void read_messages();
  void take_links(HostLinks links);
  void take_gids(std::vector<ibv_gid_entry> gids);

  EventQueue& events_;
  DeviceIdentity identity_;
  UniqueFd socket_;
  WakeEvent stop_;  ///< tells the thread to end
  std::thread thread_;
  EventSource source_;  // never retired: nothing waits for acknowledgements
  std::mutex mutex_;    // guards the members below
  HostLinks links_;
  std::vector<ibv_gid_entry> gids_;
  bool old_links_ = false;  ///< links_ may be out of date
  bool old_gids_ = false;
  std::uint64_t host_ = 0;         ///< device_guid(0)
  std::uint64_t link_downed_ = 0;  ///< see raise_link_downed()
};

}  // namespace rdmacomm::softdev
