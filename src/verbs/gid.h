// gid.h - properties of a GID, which is an IPv6 address or a mapped IPv4 address.
// Layer: verbs.
#pragma once

#include <infiniband/verbs.h>
#include <sys/socket.h>

#include <cstdint>

#include "rdmacomm/qp_address.h"

namespace rdmacomm::verbs {

/// How far packets from an address can travel.
enum class Reach : std::uint8_t {
  kRoutable,  ///< beyond routers
  kLink,      ///< one link: fe80::/10, 169.254/16
  kHost,      ///< this host: 127/8, ::1
};

/// An address and a port in the form that connect(2) and similar calls take.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  [[nodiscard]] sockaddr* get() noexcept { return reinterpret_cast<sockaddr*>(&storage); }
  [[nodiscard]] const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
};

/// Converts a GID to the type of the verbs, and back.
[[nodiscard]] ibv_gid to_ibv(const Gid& gid) noexcept;
[[nodiscard]] Gid from_ibv(const ibv_gid& gid) noexcept;

/// An IPv4 address in its mapped form, an IPv6 address as it is; all zeroes for any other family.
[[nodiscard]] ibv_gid gid_of(const sockaddr& address) noexcept;
/// The reverse: an IPv4 address if `gid` is a mapped one, else an IPv6 address.
/// port       in host byte order
/// interface  index of the interface of an fe80::/10 address; ignored for other addresses
[[nodiscard]] SocketAddress socket_address_of(const ibv_gid& gid, std::uint16_t port, std::uint32_t interface) noexcept;
[[nodiscard]] bool equal(const ibv_gid& a, const ibv_gid& b) noexcept;
/// Whether all bytes are zero, which means: no GID.
[[nodiscard]] bool is_empty(const ibv_gid& gid) noexcept;
/// ::ffff:a.b.c.d, the form of an IPv4 address as a GID.
[[nodiscard]] bool is_mapped_ipv4(const ibv_gid& gid) noexcept;
[[nodiscard]] Reach reach_of(const ibv_gid& gid) noexcept;
/// Whether two InfiniBand GIDs have one subnet prefix, their first 8 bytes.
[[nodiscard]] bool same_subnet(const ibv_gid& a, const ibv_gid& b) noexcept;

// The same functions for Gid, the type of the layers above.
[[nodiscard]] inline SocketAddress socket_address_of(const Gid& gid, std::uint16_t port,
                                                     std::uint32_t interface) noexcept {
  return socket_address_of(to_ibv(gid), port, interface);
}
[[nodiscard]] inline bool is_empty(const Gid& gid) noexcept {
  return gid == Gid{};
}
[[nodiscard]] inline bool is_mapped_ipv4(const Gid& gid) noexcept {
  return is_mapped_ipv4(to_ibv(gid));
}
[[nodiscard]] inline Reach reach_of(const Gid& gid) noexcept {
  return reach_of(to_ibv(gid));
}
[[nodiscard]] inline bool same_subnet(const Gid& a, const Gid& b) noexcept {
  return same_subnet(to_ibv(a), to_ibv(b));
}

}  // namespace rdmacomm::verbs
