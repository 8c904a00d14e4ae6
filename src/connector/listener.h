// listener.h - accepts connections, by TCP or by rdma_cm.
// Layer: connector. Uses: base.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "connector/connector.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

/// Accepts connections. A resource: neither copyable nor movable. See TcpListenSocket and CmListener.
/// Threads: accept from one thread at a time; the rest from any.
class Listener {
 public:
  Listener() = default;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  virtual ~Listener() = default;

  /// Takes the next connection, without blocking; nullptr: none is waiting (any more).
  /// Returns  the system's error, e.g. std::errc::too_many_files_open. The connection then still waits, and fd() stays
  ///          readable: pause before the next attempt.
  [[nodiscard]] virtual Result<std::unique_ptr<Connector>> accept() = 0;

  [[nodiscard]] virtual std::uint16_t port() const noexcept = 0;          ///< the actual port, also if 0 was requested
  [[nodiscard]] virtual const std::string& address() const noexcept = 0;  ///< "[::]:2020"
  /// Readable while a connection waits.
  [[nodiscard]] virtual int fd() const noexcept = 0;
};

}  // namespace rdmacomm
