// destination.h - finds the target of a copy.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rdma_copy/messages.h"
#include "rdma_copy/place.h"
#include "rdmacomm/result.h"

namespace rdmacomm::copying {

struct Destination {
  std::string path = {};      ///< with a '/' at its end: a directory, which is created if it does not exist
  std::uint32_t sources = 1;  ///< more than one: it is a directory
  /// For a pull: the sources on the server; each sends an entry with its name. Empty: the peer chooses the names.
  std::vector<std::string> names = {};
  unsigned mask = 022;  ///< the umask, if modes are not kept
};

/// A resource.
struct Target : Spot {
  bool is_absent = false;  ///< a dry run does not create the folder; `folder` is a parent of it
};

/// Finds out whether `to` is a directory, or a name for the first entry. The name must be unused, or that of a file or
/// a link.
/// Returns  an error that names the path and the reason
[[nodiscard]] Result<Target> open_destination(const Place& place, const Destination& to, const CopyOptions& options);

}  // namespace rdmacomm::copying
