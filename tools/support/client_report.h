// client_report.h - prints messages about a server's clients.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "support/host_pace.h"

namespace rdmacomm::programs {

/// Limits its lines with HostPace, because anybody who can reach the port can cause such lines. The destructor prints
/// the number of suppressed lines, unless a signal ends the server. Threads: any.
class ClientReport {
 public:
  /// clock  the time for HostPace
  explicit ClientReport(std::function<HostPace::Clock::time_point()> clock = HostPace::Clock::now)
      : clock_(std::move(clock)) {}
  ClientReport(const ClientReport&) = delete;
  ClientReport& operator=(const ClientReport&) = delete;
  ~ClientReport();

  /// A client has failed: prints a line on standard error.
  ///
  /// peer  as EndPoint::peer()
  /// text  names the client and the error
  void failed(const std::string& peer, const std::string& text);
  /// A client was served: prints "served <peer>", a line on standard output.
  void served(const std::string& peer);

 private:
  /// A well-behaved host may have several runs in a few seconds.
  static constexpr std::uint64_t kServedLines = 10;

  const std::function<HostPace::Clock::time_point()> clock_;
  std::mutex mutex_;
  HostPace failed_;
  HostPace served_{kServedLines};
};

}  // namespace rdmacomm::programs
