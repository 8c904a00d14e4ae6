// gid.h - what an address that is a GID says about itself.
// Layer: verbs.
#pragma once

#include <infiniband/verbs.h>
#include <sys/socket.h>

#include <cstdint>

#include "rdmacomm/qp_address.h"

namespace rdmacomm::verbs {

/// How far packets from an address get.
enum class Reach : std::uint8_t {
  kRoutable,  ///< beyond routers
  kLink,      ///< one link: fe80::/10, 169.254/16
  kHost,      ///< this host: 127/8, ::1
};

/// An address and a port as connect(2) and its like take them.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  [[nodiscard]] sockaddr* get() noexcept { return reinterpret_cast<sockaddr*>(&storage); }
  [[nodiscard]] const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
};

/// The same GID as the verbs have it, and back.
[[nodiscard]] ibv_gid to_ibv(const Gid& gid) noexcept;
[[nodiscard]] Gid from_ibv(const ibv_gid& gid) noexcept;

/// An IPv4 address in its mapped form, an IPv6 address as it is; all zeroes for any other family.
[[nodiscard]] ibv_gid gid_of(const sockaddr& address) noexcept;
/// The other way: an IPv4 address of one in its mapped form, else an IPv6 address.
/// port       of the host's byte order
/// interface  index of the one that an fe80::/10 address is on; others do not need it, and do not have it then
[[nodiscard]] SocketAddress socket_address_of(const ibv_gid& gid, std::uint16_t port, std::uint32_t interface) noexcept;
[[nodiscard]] bool equal(const ibv_gid& a, const ibv_gid& b) noexcept;
/// All zeroes: no GID.
[[nodiscard]] bool is_empty(const ibv_gid& gid) noexcept;
/// ::ffff:a.b.c.d, the form of an IPv4 address as a GID.
[[nodiscard]] bool is_mapped_ipv4(const ibv_gid& gid) noexcept;
[[nodiscard]] Reach reach_of(const ibv_gid& gid) noexcept;
/// Whether two InfiniBand GIDs have one subnet prefix, their first 8 bytes.
[[nodiscard]] bool same_subnet(const ibv_gid& a, const ibv_gid& b) noexcept;

// The same for what the layers above call a GID.
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
