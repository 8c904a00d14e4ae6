// address_rounds.h - reaching a server by one of its addresses, and again until it listens. Private to the layer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "connector/retry.h"
#include "connector/socket.h"
#include "rdmacomm/base/result.h"
#include "rdmacomm/connector/tcp_options.h"

namespace rdmacomm {

/// Tries all addresses of a host, one after the other, and again while somebody is there and says no, until
/// options.connect_timeout has passed. Threads: one at a time.
class AddressRounds {
 public:
  /// cancel_fd: becomes readable to give up; -1: none.
  AddressRounds(const HostPort& server, const TcpOptions& options, int cancel_fd);

  /// What `try_one` has made of an address. Of its errors, kStopped and std::errc::operation_not_permitted end it, and
  /// std::errc::connection_refused asks for another round.
  ///
  /// try_one   (const SocketAddress&, Deadline) -> Result<Made>
  /// Returns   kInvalidArgument: options.validate(), no port, or a host that has no address; kStopped; else the last
  ///           error of try_one's, the refusal where there was one: the last round may be cut short, and says less
  template <typename Made, typename TryOne>
  [[nodiscard]] Result<Made> run(TryOne&& try_one) {
    if (Status usable = look_up(); !usable) return usable.error();
    for (;;) {
      auto made = try_all<Made>(try_one);
      if (made || final_ || !refused_) return made;
      if (pause_.passed()) return *refused_;
      if (!pause_.sleep()) return stopped();
    }
  }

  /// "node7:2020 (10.0.0.1, 10.0.0.2)"; "10.0.0.1:2020". After run().
  [[nodiscard]] std::string where() const;
  [[nodiscard]] std::string gave_up() const;  ///< "gave up after 10 s"
  [[nodiscard]] Error stopped() const;

 private:
  Status look_up();

  template <typename Made, typename TryOne>
  Result<Made> try_all(TryOne& try_one) {
    std::optional<Result<Made>> last;
    auto left = static_cast<long>(addresses_.size());
    for (const SocketAddress& address : addresses_) {
      // An address that swallows packets leaves the others their share of the time.
      last.emplace(try_one(address, Deadline::after(pause_.deadline().remaining() / left--)));
      final_ = last->code() == Errc::kStopped || last->code() == std::errc::operation_not_permitted;
      if (*last || final_) break;
      if (last->code() == std::errc::connection_refused) refused_ = last->error();
    }
    return std::move(*last);
  }

  const HostPort& server_;
  const TcpOptions& options_;
  RetryPause pause_;
  std::vector<SocketAddress> addresses_;
  std::optional<Error> refused_;
  bool final_ = false;
};

}  // namespace rdmacomm
