// pending_handshakes.h - which handshakes of other nodes go on: one for each node at a time.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "rdmacomm/base/result.h"

namespace rdmacomm::mesh {

/// Keeps connections that say which node they are, and then rest in the handshake, from keeping that node out, and from holding memory:
/// each node has one place. A pure policy: time is passed in. Threads: one at a time.
class PendingHandshakes {
 public:
  using Clock = std::chrono::steady_clock;
  /// How long a handshake keeps its place against others of the same right. Real ones take milliseconds.
  static constexpr std::chrono::milliseconds kPatience{1000};

  /// Handshakes from this address take the place of those from addresses that are not of the mesh, and never the reverse.
  /// host  an address ("10.0.0.2", "[2001:db8::1]"), also with a port behind it. No effect if it is a name
  void know_host(std::string_view host);
  /// Whether that address, which may have a port behind it, is one of those.
  [[nodiscard]] bool knows_host(std::string_view address) const;

  /// A handshake of node `rank` begins.
  ///
  /// address  PeerInfo::address
  /// Returns  the address of the handshake whose place it takes, which is to be ended; empty: the place was free.
  ///          kServerBusy: another one has the place; trying again may help
  [[nodiscard]] Result<std::optional<std::string>> enter(int rank, const std::string& address, Clock::time_point now);
  /// A handshake has ended, or its endpoint is established. No effect on others.
  void leave(const std::string& address);

 private:
  using Host = std::array<std::uint8_t, 16>;
  struct Handshake {
    std::string address;
    bool of_known_host = false;
    Clock::time_point since;
  };

  [[nodiscard]] static std::optional<Host> host_of(std::string_view text);

  std::set<Host> known_hosts_;
  std::map<int, Handshake> by_rank_;
};

}  // namespace rdmacomm::mesh
