// client_report.h - what a server says about its clients.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "support/host_pace.h"

namespace rdmacomm::programs {

/// Says it at the pace of HostPace, because everyone who can reach the port can cause such lines. What was left out is
/// said when this object ends, unless a signal ends the server. Threads: any.
class ClientReport {
 public:
  /// clock  by which it keeps the pace
  explicit ClientReport(std::function<HostPace::Clock::time_point()> clock = HostPace::Clock::now)
      : clock_(std::move(clock)) {}
  ClientReport(const ClientReport&) = delete;
  ClientReport& operator=(const ClientReport&) = delete;
  ~ClientReport();

  /// A client has ended in error: a line on standard error.
  ///
  /// peer  as EndPoint::peer()
  /// text  names the client, and says why it ended
  void failed(const std::string& peer, const std::string& text);
  /// A client has had its run: "served <peer>", a line on standard output.
  void served(const std::string& peer);

 private:
  /// A host that plays by the rules may have several runs in a few seconds.
  static constexpr std::uint64_t kServedLines = 10;

  const std::function<HostPace::Clock::time_point()> clock_;
  std::mutex mutex_;
  HostPace failed_;
  HostPace served_{kServedLines};
};

}  // namespace rdmacomm::programs
