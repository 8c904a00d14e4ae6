// placed_slices.h - the slices of a request, with the addresses of their memory.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "softdev/common/device_limits.h"
#include "softdev/memory/mr_table.h"

namespace rdmacomm::softdev {

/// The slices of a request or of a receive, with their addresses in this process. Slices in registrations with other
/// addresses (iova) are translated. The pages of slices in on-demand registrations are loaded.
class PlacedSlices {
 public:
  /// Returns  false: one of `slices` (at most kMaxSge) is not registered in `table` for `pd` with all of `access`, or
  ///          its pages cannot be loaded.
  [[nodiscard]] bool place(std::span<const MrEntry> table, std::uint32_t pd, std::span<const ibv_sge> slices,
                           std::uint32_t access) noexcept;
  [[nodiscard]] std::span<ibv_sge> get() noexcept { return std::span(slices_).first(count_); }

 private:
  std::array<ibv_sge, kMaxSge> slices_;
  std::size_t count_ = 0;
};

}  // namespace rdmacomm::softdev
