// placed_slices.h - where the slices of a request lie, if not where it says.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "softdev/common/device_limits.h"
#include "softdev/memory/mr_table.h"

namespace rdmacomm::softdev {

/// The slices of a request or of a receive in the memory of this process. Those in registrations that have addresses of
/// their own (iova) are named by these.
class PlacedSlices {
 public:
  /// false: one of `slices`, kMaxSge at the most, is not registered in `table` for `pd` with all of `access`.
  [[nodiscard]] bool place(std::span<const MrEntry> table, std::uint32_t pd, std::span<const ibv_sge> slices,
                           std::uint32_t access) noexcept;
  [[nodiscard]] std::span<ibv_sge> get() noexcept { return std::span(slices_).first(count_); }

 private:
  std::array<ibv_sge, kMaxSge> slices_;
  std::size_t count_ = 0;
};

}  // namespace rdmacomm::softdev
