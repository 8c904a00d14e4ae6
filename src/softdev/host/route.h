// route.h - the route to a target.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace rdmacomm::softdev {

/// The route of the requests of a queue pair, or of datagrams to a target.
struct Route {
  bool by_memory = true;        ///< shared memory of one host; the other members are unused then
  ibv_gid source{};             ///< an address of this host
  ibv_gid target{};             ///< an address of the target
  std::uint32_t interface = 0;  ///< for link-local addresses only
};

}  // namespace rdmacomm::softdev
