// total_size.h - how much there is to copy, where a display wants to know.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rdmacomm::copying {

/// Bytes of the files that `paths` name, and with `recursive` of those in directories among them. Holes count; what
/// cannot be looked at does not.
/// Cost: a look at each entry. Returns  empty: `over` was set meanwhile
[[nodiscard]] std::optional<std::uint64_t> total_size(const std::vector<std::string>& paths, bool recursive,
                                                      const std::atomic<bool>& over);

}  // namespace rdmacomm::copying
