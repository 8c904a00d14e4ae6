// route.h - which way a target is reached.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace rdmacomm::softdev {

/// Which way the requests of a queue pair, or to a target of datagrams, go.
struct Route {
  bool by_memory = true;        ///< shared memory of one host; the rest says nothing then
  ibv_gid source{};             ///< an address of this host, and
  ibv_gid target{};             ///< one of the target's
  std::uint32_t interface = 0;  ///< for addresses of one link only
};

}  // namespace rdmacomm::softdev
