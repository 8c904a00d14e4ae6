// host_listener.h - the port at which other hosts reach the listeners of this host.
#pragma once

#include <optional>

#include "base/unique_fd.h"
#include "softdev/tcp/tcp_addresses.h"

namespace rdmacomm::softdev {

/// The listening socket at kCmPort. All processes of one user that listen for connections share it: the first one makes
/// it, and gives it to the others. So it lives until the last of these processes ends, and each of them may accept a
/// connection. A connection for a listener of another process is handed over to that process.
/// Threads: one at a time.
class HostListener {
 public:
  /// Makes the socket, or asks another process for it. Never waits: that process may be stopped. Until it answers, or
  /// ends, asking() is valid; readable: call open() again. Meanwhile the other process hands connections over.
  /// addresses  the addresses at which it may listen; no value: all of them
  /// Returns  0, or an errno value. EINPROGRESS: it has asked. EAGAIN: it can neither make it nor ask now. EADDRINUSE:
  ///          another user's process, or another program, has the port. Listeners of this process are then reached from
  ///          this host only.
  [[nodiscard]] int open(const std::optional<TcpAddresses>& addresses);
  [[nodiscard]] bool is_open() const noexcept { return tcp_.valid(); }
  void close() noexcept;

  /// Other hosts' connections arrive here.
  [[nodiscard]] int tcp() const noexcept { return tcp_.get(); }
  [[nodiscard]] int asking() const noexcept { return asking_.get(); }
  /// Other processes ask here for the socket; readable: call share().
  [[nodiscard]] int requests() const noexcept { return requests_.get(); }
  /// Returns false and errno: the other process could not be accepted, and still waits, or has ended.
  bool share() const noexcept;

 private:
  [[nodiscard]] int make(const std::optional<TcpAddresses>& addresses);
  [[nodiscard]] int ask_other();
  [[nodiscard]] int get_from_other();
  void stop_asking() noexcept;

  UniqueFd tcp_;
  UniqueFd requests_;
  UniqueFd asking_;
  UniqueFd tcp_of_other_;  ///< the first part of its answer
};

}  // namespace rdmacomm::softdev
