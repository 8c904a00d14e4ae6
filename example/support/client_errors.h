// client_errors.h - what a server says about clients that end in error.
#pragma once

#include <mutex>
#include <string>

#include "support/host_pace.h"

namespace rdmacomm::programs {

/// Says it at the pace of HostPace, because everyone who can reach the port can cause such lines. What was left out is said at the end of the
/// server, when this object ends. Threads: any.
class ClientErrors {
 public:
  ClientErrors() = default;
  ClientErrors(const ClientErrors&) = delete;
  ClientErrors& operator=(const ClientErrors&) = delete;
  ~ClientErrors();

  /// peer  as EndPoint::peer()
  /// text  names the client, and says why it ended
  void tell(const std::string& peer, const std::string& text);

 private:
  std::mutex mutex_;
  HostPace pace_;
};

}  // namespace rdmacomm::programs
