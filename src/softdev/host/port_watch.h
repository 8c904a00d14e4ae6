// port_watch.h - reports network changes of the host as events of the device port.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "base/wake_event.h"
#include "softdev/common/event_queue.h"
#include "softdev/host/soft_device.h"

namespace rdmacomm::softdev {

/// The interfaces of a port that are up. The port is up while at least one of them is up. If the device belongs to no
/// interface, these are all interfaces of the host. The loopback interface counts, because processes of this host reach
/// each other through it.
class HostLinks {
 public:
  /// interface  the name of the only interface that counts; empty: all count
  explicit HostLinks(std::string interface = {}) : interface_(std::move(interface)) {}
  /// Reads the current state in this thread's network namespace. Returns 0, or an errno value; then nothing has
  /// changed.
  [[nodiscard]] int read();
  [[nodiscard]] bool any_up() const noexcept { return !up_.empty(); }
  /// Their indices.
  [[nodiscard]] const std::set<int>& up() const noexcept { return up_; }
  /// interface  its index
  /// flags      as in netdevice(7); 0: the interface was removed
  /// name       its name now
  void set(int interface, unsigned flags, std::string_view name);

 private:
  std::string interface_;
  std::set<int> up_;
};

/// Receives changes of the network through a netlink socket and pushes the events: the port goes down with its last
/// interface, comes up with its first one, or has a different GID table. A thread reads the socket. The socket itself
/// cannot be the context's async_fd: most messages are no events, so a program has to interpret them. The watch also
/// caches the GID tables, so that reading a table needs no list of all addresses.
///
/// If the device belongs to an interface, its queue pairs stop and continue with the port. They are told by a function,
/// which the thread calls. Threads: any.
class PortWatch {
 public:
  /// events  receives the events; must live until stop()
  explicit PortWatch(EventQueue& events) : events_(events) {}
  PortWatch(const PortWatch&) = delete;
  PortWatch& operator=(const PortWatch&) = delete;
  ~PortWatch() { stop(); }

  /// Watches this thread's network namespace from now on. Returns 0, or an errno value; then no event is ever pushed.
  /// follow  called by the thread after each change of is_up(). Only for a device that belongs to an interface.
  [[nodiscard]] int start(const DeviceIdentity& identity, std::function<void()> follow);
  /// Ends the watch. After it returns, the thread pushes no more events.
  void stop() noexcept;
  /// Pushes the events since the last call, without waiting for the thread.
  void look();
  /// False while the interface that the device belongs to is down or does not exist. Always true for a device that
  /// belongs to none, and if the watch is not open.
  [[nodiscard]] bool is_up() const noexcept { return is_up_.load(std::memory_order_acquire); }
  /// The number of changes of is_up(). The change is visible before its number.
  [[nodiscard]] std::uint64_t changes() const noexcept { return changes_.load(std::memory_order_acquire); }
  /// True if the device belongs to an interface.
  [[nodiscard]] bool is_bound() const noexcept { return !identity_.interface.empty(); }
  /// The port's current GID table. Calls look() first. Also works if the watch is not open.
  /// host     not nullptr: also the table of host_gids()
  /// Returns  as gid_table().
  /// Cost: one system call if nothing has changed. The kernel reports a change before the call that makes the change
  /// returns.
  [[nodiscard]] int gids(std::vector<ibv_gid_entry>& table, std::vector<ibv_gid_entry>* host = nullptr);
  /// Pushes an event of each port.
  void report(ibv_event_type type);
  /// Pushes IBV_EVENT_DEVICE_FATAL.
  void report_device_failure();

 private:
  [[nodiscard]] int open();
  void run();
  [[nodiscard]] bool is_behind();
  void read_messages();
  void take_links(HostLinks links);
  struct Tables {
    std::vector<ibv_gid_entry> own;
    std::vector<ibv_gid_entry> host;  ///< empty if it equals `own`
  };
  [[nodiscard]] int read_tables(Tables& tables) const;
  void take_tables(Tables tables);

  EventQueue& events_;
  DeviceIdentity identity_;
  UniqueFd socket_;
  WakeEvent wake_;  ///< the thread must end or call follow_
  std::atomic<bool> stopping_{false};
  std::thread thread_;
  std::function<void()> follow_;
  std::atomic<bool> is_up_{true};
  std::atomic<std::uint64_t> changes_{0};
  EventSource source_;  // never retired: nothing waits for acknowledgements
  std::mutex mutex_;    // guards the members below
  HostLinks links_;
  Tables tables_;
  bool old_links_ = false;  ///< links_ may be out of date
  bool old_gids_ = false;
  std::uint64_t host_ = 0;         ///< device_guid(0)
  std::uint64_t link_downed_ = 0;  ///< see raise_link_downed()
};

}  // namespace rdmacomm::softdev
