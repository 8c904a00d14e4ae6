// gid.h - what an address that is a GID says about itself.
// Layer: verbs. Uses: base.
#pragma once

#include <infiniband/verbs.h>
#include <sys/socket.h>

#include <cstdint>

namespace rdmacomm::verbs {

/// How far packets from an address get.
enum class Reach : std::uint8_t {
  kRoutable,  ///< beyond routers
  kLink,      ///< one link: fe80::/10, 169.254/16
  kHost,      ///< this host: 127/8, ::1
};

/// An IPv4 address in its mapped form, an IPv6 address as it is; all zeroes for any other family.
[[nodiscard]] ibv_gid gid_of(const sockaddr& address) noexcept;
[[nodiscard]] bool equal(const ibv_gid& a, const ibv_gid& b) noexcept;
/// All zeroes: no GID.
[[nodiscard]] bool is_empty(const ibv_gid& gid) noexcept;
/// ::ffff:a.b.c.d, the form of an IPv4 address as a GID.
[[nodiscard]] bool is_mapped_ipv4(const ibv_gid& gid) noexcept;
[[nodiscard]] Reach reach_of(const ibv_gid& gid) noexcept;
/// Whether two InfiniBand GIDs have one subnet prefix, their first 8 bytes.
[[nodiscard]] bool same_subnet(const ibv_gid& a, const ibv_gid& b) noexcept;

}  // namespace rdmacomm::verbs
