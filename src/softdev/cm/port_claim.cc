#include "softdev/cm/port_claim.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <random>
#include <string_view>
#include <utility>

#include "softdev/shared/bound_names.h"
#include "softdev/shared/unix_packet.h"
#include "verbs/gid.h"

namespace rdmacomm::softdev {
namespace {

constexpr int kBacklog = 128;
constexpr std::string_view kSharedMark = "/r";
// "Any address" as the last part of a name.
constexpr std::string_view kAnyIpv4 = "4";
constexpr std::string_view kAnyIpv6 = "6";
constexpr std::string_view kAny = "46";

/// An abstract name begins with a zero byte, which the list of names leaves out.
std::string abstract(const std::string& name) {
  return std::string(1, '\0') + name;
}

/// The part of a name that all identifiers with this port have.
std::string name_of_port(std::uint16_t port_space, std::uint16_t port) {
  return "rdmacomm/soft0/cm/" + std::to_string(port_space) + "/" + std::to_string(port) + "/";
}

std::string place_of(const CmAddress& address, bool is_ipv6_only) {
  if (!address.is_any()) return digits_of(address.gid);
  if (address.family == AF_INET) return std::string(kAnyIpv4);
  return std::string(is_ipv6_only ? kAnyIpv6 : kAny);
}

bool is_any(std::string_view place) {
  return place == kAnyIpv4 || place == kAnyIpv6 || place == kAny;
}

bool has_ipv4(std::string_view place) {
  constexpr std::string_view kMapped = "00000000000000000000ffff";
  return place == kAnyIpv4 || place == kAny || place.starts_with(kMapped);
}

bool has_ipv6(std::string_view place) {
  return place == kAnyIpv6 || place == kAny || (!is_any(place) && !has_ipv4(place));
}

/// True if some address belongs to both.
bool overlap(std::string_view one, std::string_view other) {
  if (!is_any(one) && !is_any(other)) return one == other;
  return (has_ipv4(one) && has_ipv4(other)) || (has_ipv6(one) && has_ipv6(other));
}

/// True if another identifier's socket excludes one with this place.
/// own  the rest of our own name after the port: it counts once
bool is_excluded(std::uint16_t port_space, std::uint16_t port, std::string_view own, bool shares) {
  std::vector<std::string> others = bound_names(name_of_port(port_space, port), NamesOf::kAllUsers);
  const auto mine = std::ranges::find(others, own);
  if (mine != others.end()) others.erase(mine);
  const std::string_view place = own.substr(0, own.find(kSharedMark));
  return std::ranges::any_of(others, [place, shares](std::string_view other) {
    const std::size_t mark = other.find(kSharedMark);
    if (shares && mark != std::string_view::npos) return false;
    return overlap(place, other.substr(0, mark));
  });
}

/// The ports that the system takes for connections that ask for none: ip_local_port_range.
std::pair<std::uint16_t, std::uint16_t> range_of_any_port() {
  unsigned first = 32768;
  unsigned last = 60999;
  std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
  unsigned from = 0;
  unsigned to = 0;
  if (range >> from >> to && from > 0 && from <= to && to <= 0xffff) {
    first = from;
    last = to;
  }
  return {static_cast<std::uint16_t>(first), static_cast<std::uint16_t>(last)};
}

}  // namespace

int PortClaim::take_port(std::uint16_t port, bool shares) {
  static std::atomic<unsigned> number{0};
  std::string own = place_of(address_, is_ipv6_only_);
  if (shares) own += std::string(kSharedMark) + std::to_string(getpid()) + "." + std::to_string(number++);
  UniqueFd socket = bind_to(abstract(name_of_port(port_space_, port) + own));
  if (!socket) return errno;
  // Our own name is bound first, so of two processes at most one finds no other. If both find the other one, both fail.
  if (is_excluded(port_space_, port, own, shares)) return EADDRINUSE;
  socket_ = std::move(socket);
  address_.port = port;
  is_shared_ = shares;
  return 0;
}

int PortClaim::take(std::uint16_t port_space, CmAddress& address, bool shares, bool is_ipv6_only) {
  release();
  port_space_ = port_space;
  address_ = address;
  is_ipv6_only_ = is_ipv6_only;
  if (address.port != 0) return take_port(address.port, shares);
  static const auto range = range_of_any_port();
  const unsigned ports = range.second - range.first + 1U;
  const unsigned start = std::random_device{}();
  int error = EADDRINUSE;
  for (unsigned tries = 0; tries < ports && error == EADDRINUSE; ++tries) {
    error = take_port(static_cast<std::uint16_t>(range.first + (start + tries) % ports), shares);
  }
  if (error == 0) address.port = address_.port;
  return error;
}

int PortClaim::listen() {
  if (is_shared_) {
    // From now on the name is that of a listener, which only one socket can have.
    UniqueFd shared = std::move(socket_);
    const std::string own = place_of(address_, is_ipv6_only_);
    UniqueFd alone = bind_to(abstract(name_of_port(port_space_, address_.port) + own));
    const int error = alone ? 0 : errno;
    if (error != 0 || is_excluded(port_space_, address_.port, own, true)) {
      socket_ = std::move(shared);
      return error != 0 ? error : EADDRINUSE;
    }
    socket_ = std::move(alone);
    is_shared_ = false;
  }
  return ::listen(socket_.get(), kBacklog) == 0 ? 0 : errno;
}

std::vector<std::string> listener_names(std::uint16_t port_space, const CmAddress& target) {
  const std::string port = abstract(name_of_port(port_space, target.port));
  const std::string_view any_of_family = verbs::is_mapped_ipv4(target.gid) ? kAnyIpv4 : kAnyIpv6;
  return {port + digits_of(target.gid), port + std::string(any_of_family), port + std::string(kAny)};
}

UniqueFd connect_to_listener(std::uint16_t port_space, const CmAddress& target) {
  struct Found {
    UniqueFd socket;
    uid_t user = 0;
  };
  std::vector<Found> found;
  bool is_full = false;
  for (const std::string& name : listener_names(port_space, target)) {
    UniqueFd socket = connect_at_once(name);
    if (!socket && errno != ECONNREFUSED && errno != EAGAIN) return {};
    if (!socket) {
      is_full = is_full || errno == EAGAIN;
      continue;
    }
    PeerCredentials owner;
    if (!peer_credentials(socket.get(), owner)) return {};
    found.push_back({std::move(socket), owner.uid});
  }
  const auto of = [&found](uid_t user) { return std::ranges::find(found, user, &Found::user); };
  auto chosen = found.begin();
  const bool have_one_owner = std::ranges::all_of(found, [&](const Found& one) { return one.user == chosen->user; });
  if (!have_one_owner) chosen = of(geteuid()) != found.end() ? of(geteuid()) : of(0);
  // One that has no room might be a better choice than another user's.
  if (is_full && (chosen == found.end() || chosen->user != geteuid())) {
    errno = EAGAIN;
    return {};
  }
  if (chosen == found.end()) {
    errno = ECONNREFUSED;
    return {};
  }
  return std::move(chosen->socket);
}

}  // namespace rdmacomm::softdev
