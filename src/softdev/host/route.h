// route.h - the route to a target.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "verbs/gid.h"

namespace rdmacomm::softdev {

/// The route of the requests of a queue pair, or of datagrams to a target.
struct Route {
  bool by_memory = true;        ///< shared memory of one host; the other members are unused then
  ibv_gid source{};             ///< an address of this host
  ibv_gid target{};             ///< an address of the target
  std::uint32_t interface = 0;  ///< for link-local addresses only

  [[nodiscard]] bool operator==(const Route& other) const noexcept {
    return by_memory == other.by_memory && verbs::equal(source, other.source) && verbs::equal(target, other.target) &&
           interface == other.interface;
  }
};

}  // namespace rdmacomm::softdev
