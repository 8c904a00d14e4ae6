// listener.h - where clients knock, whatever they come by.
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

  /// Takes the next connection, without blocking; nullptr: none waits (any more).
  /// Returns  what the system said, e.g. std::errc::too_many_files_open. The connection then still waits, and fd()
  ///          stays readable: pause before trying again.
  [[nodiscard]] virtual Result<std::unique_ptr<Connector>> accept() = 0;

  [[nodiscard]] virtual std::uint16_t port() const noexcept = 0;          ///< the real one, also where 0 was asked for
  [[nodiscard]] virtual const std::string& address() const noexcept = 0;  ///< "[::]:2020"
  /// Readable while a connection waits.
  [[nodiscard]] virtual int fd() const noexcept = 0;
};

}  // namespace rdmacomm
