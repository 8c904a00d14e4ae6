// address_rounds.h - connects to a server by any of its addresses, and retries until it listens. Private to the layer.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "connector/retry.h"
#include "connector/socket.h"
#include "rdmacomm/connector.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

/// Whether connecting may succeed later although it has failed with this error. Causes that may pass: no program
/// listens yet; the host is not up or does not answer yet; the local link is down or has no address or route yet; a
/// server that ends resets its connections.
[[nodiscard]] bool may_connect_later(std::error_code why) noexcept;

/// Tries all addresses of a host, one after the other, and repeats this until one connects, or until
/// options.connect_timeout has passed. If the resolver fails temporarily, it looks the name up again. Threads: one at a
/// time.
class AddressRounds {
 public:
  /// Finds the addresses of a host; as resolve().
  using LookUp = std::function<Result<std::vector<SocketAddress>>(const HostPort&)>;
  /// The longest time that one attempt waits. If the first packet to a host was lost, a new attempt reaches the host
  /// soon after it comes up, while TCP itself would retransmit at longer and longer intervals.
  static constexpr std::chrono::seconds kLongestTry{5};

  /// cancel_fd: becomes readable to give up; -1: none.
  AddressRounds(const HostPort& server, const TcpOptions& options, int cancel_fd);
  AddressRounds(const HostPort& server, const TcpOptions& options, int cancel_fd, LookUp look_up);
  AddressRounds(const AddressRounds&) = delete;
  AddressRounds& operator=(const AddressRounds&) = delete;

  /// Calls `try_one` for each address, and again after errors for which may_connect_later() is true. Other errors are
  /// final for that address; kStopped and std::errc::operation_not_permitted are final for all addresses.
  ///
  /// try_one   (const SocketAddress&, Deadline) -> Result<Made>
  /// Returns   kInvalidArgument: options.validate(), no port, or a host that has no address; kStopped;
  ///           std::errc::resource_unavailable_try_again: the resolver had no answer until the end; else
  ///           connection_refused if any attempt was refused, or the last error of `try_one` other than a timeout (the
  ///           last round may be cut short)
  template <typename Made, typename TryOne>
  [[nodiscard]] Result<Made> run(TryOne&& try_one) {
    if (Status usable = check(); !usable) return usable.error();
    for (;;) {
      auto made = try_all<Made>(try_one);
      if (made || final_ || !again_) return made;
      if (pause_.passed()) return last_error_.value_or(made.error());
      if (!pause_.sleep()) return stopped();
    }
  }

  /// Looks the host up, and repeats this while the lookup fails temporarily. Returns  as run()
  [[nodiscard]] Result<std::vector<SocketAddress>> find() {
    const auto found = run<bool>([](const SocketAddress&, Deadline) { return Result<bool>(true); });
    if (!found) return found.error();
    return addresses_;
  }

  /// "node7:2020 (10.0.0.1, 10.0.0.2)"; "10.0.0.1:2020". After run().
  [[nodiscard]] std::string where() const;
  /// "gave up after 10 s": the time since the first attempt.
  [[nodiscard]] std::string gave_up() const;
  [[nodiscard]] Error stopped() const;

 private:
  Status check() const;
  Status look_up();

  template <typename Made, typename TryOne>
  Result<Made> try_all(TryOne& try_one) {
    again_ = false;
    if (Status found = look_up(); !found) return note(found.error());
    std::optional<Result<Made>> last;
    auto left = static_cast<long>(addresses_.size());
    for (const SocketAddress& address : addresses_) {
      // An address that drops packets must leave time for the others.
      const auto share = std::min<Deadline::Clock::duration>(pause_.deadline().remaining() / left--, kLongestTry);
      last.emplace(try_one(address, Deadline::after(share)));
      if (*last) break;
      (void)note(last->error());
      if (final_) break;
    }
    return std::move(*last);
  }
  Error note(const Error& why);

  const HostPort& server_;
  const TcpOptions& options_;
  const LookUp look_up_;
  const Deadline::Clock::time_point begun_ = Deadline::Clock::now();
  RetryPause pause_;
  std::vector<SocketAddress> addresses_;
  std::optional<Error> last_error_;  // the last error other than a timeout; a refusal if there was one
  bool again_ = false;               // another round may succeed
  bool final_ = false;
};

}  // namespace rdmacomm
