// soft_dm.h - memory of the device, which is memory of the process that peers can map.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace rdmacomm::softdev {

struct SoftDm : ibv_dm {
  std::byte* memory = nullptr;
  std::size_t size = 0;
  std::atomic<int> users{0};  ///< number of registrations

  [[nodiscard]] static SoftDm& from(ibv_dm* dm) noexcept { return *static_cast<SoftDm*>(dm); }
  /// True if the range is inside.
  [[nodiscard]] bool has(std::uint64_t offset, std::size_t length) const noexcept {
    return offset <= size && length <= size - offset;
  }
};

}  // namespace rdmacomm::softdev
