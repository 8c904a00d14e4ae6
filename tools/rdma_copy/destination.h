// destination.h - where a copy goes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rdma_copy/messages.h"
#include "rdma_copy/place.h"
#include "rdmacomm/result.h"

namespace rdmacomm::copying {

struct Destination {
  std::string path = {};      ///< with a '/' at its end: a directory, which is made if it is not there
  std::uint32_t sources = 1;  ///< more than one: it is a directory
  /// Of a pull: the sources on the server, of which each sends what has its name. Empty: the other side chooses names.
  std::vector<std::string> names = {};
  unsigned mask = 022;  ///< of modes, where they are not kept (umask)
};

/// A resource.
struct Target : Spot {
  bool is_absent = false;  ///< a dry run would make the folder; `folder` is one above it
};

/// Finds out whether `to` is a directory, or the name that the first thing that comes gets: one that nothing has, or a
/// file or a link.
/// Returns  an error that names the path and why nothing can be copied there
[[nodiscard]] Result<Target> open_destination(const Place& place, const Destination& to, const CopyOptions& options);

}  // namespace rdmacomm::copying
