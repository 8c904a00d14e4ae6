// port_watch.h - what happens to the host's network, as events of the device's port.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <vector>

#include "rdmacomm/base/unique_fd.h"
#include "softdev/event_queue.h"
#include "softdev/soft_device.h"

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

/// Hears of changes by a netlink socket, and says which of them are events: a port that goes down with the last interface
/// or comes up with the first, a GID table that differs. No thread waits for them: the socket makes the context's
/// async_fd readable, and who takes events looks here first. So it knows the table, too, without asking for all addresses.
/// Threads: any.
class PortWatch {
 public:
  /// 0, or an errno value: there will be no events.
  [[nodiscard]] int open(const DeviceIdentity& identity);
  /// Readable while there may be something new; -1: not open.
  [[nodiscard]] int fd() const noexcept { return socket_.get(); }
  /// Tells `events` what has happened since the last time.
  void look(EventQueue& events);
  /// The port's GID table as it is now; looks first. Returns  as gid_table(), also where the watch is not open
  /// Cost: one system call, but where something has changed: the kernel has said so before the change is done.
  [[nodiscard]] int gids(std::vector<ibv_gid_entry>& table, EventQueue& events);

 private:
  void read_messages(EventQueue& events);
  void take_links(HostLinks links, EventQueue& events);
  void take_gids(std::vector<ibv_gid_entry> gids, EventQueue& events);
  void tell(ibv_event_type type, EventQueue& events);

  DeviceIdentity identity_;
  UniqueFd socket_;
  EventSource source_;  // never retired: nobody waits for acknowledgements
  std::mutex mutex_;    // guards what follows
  HostLinks links_;
  std::vector<ibv_gid_entry> gids_;
  bool old_links_ = false;  ///< they may be others now
  bool old_gids_ = false;
};

}  // namespace rdmacomm::softdev
