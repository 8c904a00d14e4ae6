// total_size.h - the amount of data to copy, for a progress display.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rdmacomm::copying {

/// The bytes of the files in `paths`, and with `recursive` of the files in directories among them. Holes count; entries
/// that cannot be examined do not.
/// Cost: one stat for each entry. Returns  empty: `over` was set meanwhile
[[nodiscard]] std::optional<std::uint64_t> total_size(const std::vector<std::string>& paths, bool recursive,
                                                      const std::atomic<bool>& over);

}  // namespace rdmacomm::copying
