// pending_handshakes.h - limits the simultaneous handshakes of each node.
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

/// A connection may claim to be some node and then do nothing. This class prevents such connections from keeping the
/// real node out, and from holding memory. Each node has a few places for handshakes from hosts of the mesh. The real
/// process may have to share them with others on its host. If the places are taken, handshakes wait in the order of
/// their arrival. Handshakes from other hosts have one place, and only while none from the mesh has one. A pure policy:
/// the caller passes the time. Threads: one at a time.
class PendingHandshakes {
 public:
  using Clock = std::chrono::steady_clock;
  /// How long a handshake keeps its place against others with the same right. Real handshakes take milliseconds.
  static constexpr std::chrono::milliseconds kPatience{500};
  static constexpr std::size_t kMaxPlaces = 8;
  /// The memory that the handshakes of one node may use together. One handshake is allowed in any case.
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{64} << 20;

  /// The number of places of each node, if a handshake uses that much memory.
  [[nodiscard]] static constexpr std::size_t places_for(std::uint64_t handshake_bytes) noexcept {
    return std::clamp<std::size_t>(kMaxBytes / std::max<std::uint64_t>(handshake_bytes, 1), 1, kMaxPlaces);
  }
  /// places  1..kMaxPlaces
  explicit PendingHandshakes(std::size_t places = kMaxPlaces) : places_(places) {}

  /// Registers a host of the mesh. Handshakes from it replace those from other hosts, and never the reverse.
  /// host  an address ("10.0.0.2", "[2001:db8::1]"), optionally with a port. No effect if it is a name
  void know_host(std::string_view host);
  /// Whether the address, optionally with a port, was registered by know_host().
  [[nodiscard]] bool knows_host(std::string_view address) const;

  /// A handshake of node `rank` begins, or asks again while it waits.
  ///
  /// address  PeerInfo::address
  /// Returns  the address of the handshake that it replaces, which must be ended; empty: the place was free.
  ///          kServerBusy: no place. If waits() is then true, ask again, at next_look() at the latest; otherwise a
  ///          later attempt may succeed
  [[nodiscard]] Result<std::optional<std::string>> enter(int rank, const std::string& address, Clock::time_point now);
  [[nodiscard]] bool waits(int rank, const std::string& address) const;
  /// The time when a handshake of node `rank` may have to give up its place, if none ends earlier.
  [[nodiscard]] Clock::time_point next_look(int rank) const;
  /// A handshake has ended, its endpoint is established, or it stops waiting. No effect on others.
  void remove(const std::string& address);

 private:
  using Host = std::array<std::uint8_t, 16>;
  struct Handshake {
    std::string address;
    bool of_known_host = false;
    Clock::time_point since;
  };

  [[nodiscard]] static std::optional<Host> host_of(std::string_view text);

  struct OfRank {
    std::deque<Handshake> places = {};     // in the order in which they were taken
    std::deque<std::string> waiting = {};  // in the order of arrival, from known hosts
  };

  const std::size_t places_;
  std::set<Host> known_hosts_;
  std::map<int, OfRank> by_rank_;
};

}  // namespace rdmacomm::mesh
