// pending_handshakes.h - which handshakes of other nodes go on: a few for each node at a time.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "rdmacomm/result.h"

namespace rdmacomm::mesh {

/// Keeps connections that say which node they are, and then rest in the handshake, from keeping that node out, and from
/// holding memory. Each node has a few places for handshakes from hosts of the mesh, which the process may have to
/// share with others on its host. If they are taken, handshakes wait in the order of their arrival. Handshakes from
/// other hosts have one place, while those have none. A pure policy: time is passed in. Threads: one at a time.
class PendingHandshakes {
 public:
  using Clock = std::chrono::steady_clock;
  /// How long a handshake keeps its place against others of the same right. Real ones take milliseconds.
  static constexpr std::chrono::milliseconds kPatience{500};
  static constexpr std::size_t kMaxPlaces = 8;
  /// What the handshakes of one node may hold in all; one has a place however much it takes.
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{64} << 20;

  /// How many places each node has, if a handshake holds that much memory.
  [[nodiscard]] static constexpr std::size_t places_for(std::uint64_t handshake_bytes) noexcept {
    return std::clamp<std::size_t>(kMaxBytes / std::max<std::uint64_t>(handshake_bytes, 1), 1, kMaxPlaces);
  }
  /// places  1..kMaxPlaces
  explicit PendingHandshakes(std::size_t places = kMaxPlaces) : places_(places) {}

  /// Handshakes from this address take the place of those from addresses that are not of the mesh, and never the
  /// reverse.
  /// host  an address ("10.0.0.2", "[2001:db8::1]"), also with a port behind it. No effect if it is a name
  void know_host(std::string_view host);
  /// Whether that address, which may have a port behind it, is one of those.
  [[nodiscard]] bool knows_host(std::string_view address) const;

  /// A handshake of node `rank` begins, or asks again because it waits.
  ///
  /// address  PeerInfo::address
  /// Returns  the address of the handshake whose place it takes, which is to be ended; empty: the place was free.
  ///          kServerBusy: there is no place. If it waits() then, ask again, at the latest at next_look(); else a later
  ///          try may help
  [[nodiscard]] Result<std::optional<std::string>> enter(int rank, const std::string& address, Clock::time_point now);
  [[nodiscard]] bool waits(int rank, const std::string& address) const;
  /// When a handshake of node `rank` may have to give up its place, if none ends before.
  [[nodiscard]] Clock::time_point next_look(int rank) const;
  /// A handshake has ended, or its endpoint is established, or it waits no more. No effect on others.
  void leave(const std::string& address);

 private:
  using Host = std::array<std::uint8_t, 16>;
  struct Handshake {
    std::string address;
    bool of_known_host = false;
    Clock::time_point since;
  };

  [[nodiscard]] static std::optional<Host> host_of(std::string_view text);

  struct OfRank {
    std::deque<Handshake> places = {};     // in the order in which they have been taken
    std::deque<std::string> waiting = {};  // in the order of arrival, of known hosts
  };

  const std::size_t places_;
  std::set<Host> known_hosts_;
  std::map<int, OfRank> by_rank_;
};

}  // namespace rdmacomm::mesh
