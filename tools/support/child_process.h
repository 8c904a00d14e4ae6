// child_process.h - the server of --role=both: a second process, which never outlives the first.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/unique_fd.h"
#include "rdmacomm/result.h"

namespace rdmacomm::programs {

/// A forked process that serves at a TCP port of its own choice. A resource. The destructor ends the process, by its
/// id. If the parent process is killed first, the kernel ends the child.
/// Threads: one at a time.
class ServerProcess {
 public:
  /// The program of the child. It must call `listening` with the port once clients can connect. Returns the child's
  /// exit status.
  using Main = std::function<int(const std::function<void(std::uint16_t port)>& listening)>;

  /// Forks, runs `main` in the child, and waits until it listens. Call this before anything else is opened or started,
  /// because the child inherits all open descriptors.
  /// Returns  kPeerLost: the server ended before it listened (it has printed why); kTimeout; or the system's error
  [[nodiscard]] static Result<std::unique_ptr<ServerProcess>> start(const Main& main, std::chrono::seconds patience);
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;
  ~ServerProcess();

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

  /// Waits until the server has ended by itself.
  /// Returns  kPeerLost: it ended with another status than 0, or by a signal; kTimeout: it was still running (and is
  ///          ended)
  [[nodiscard]] Status wait(std::chrono::seconds patience);

 private:
  ServerProcess(pid_t pid, UniqueFd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}
  void end() noexcept;

  pid_t pid_;
  UniqueFd pidfd_;
  std::uint16_t port_ = 0;
  bool reaped_ = false;
};

}  // namespace rdmacomm::programs
