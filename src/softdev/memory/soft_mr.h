// soft_mr.h - a registration and a memory window, as the application has them.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "softdev/memory/locked_memory.h"
#include "softdev/memory/soft_dm.h"
#include "softdev/shared/shared_file.h"

namespace rdmacomm::softdev {

struct SoftMr : ibv_mr {
  int access = 0;
  std::uint64_t iova = 0;           ///< its first address, as requests use it
  Mapping dmabuf;                   ///< its mapping, if the application has not mapped the memory
  LockedMemory locked;              ///< the pages that a NIC would lock
  SoftDm* device_memory = nullptr;  ///< if it registers a part of one
  bool is_null = false;             ///< made by alloc_null_mr()
  int windows = 0;                  ///< number of windows bound to it; guarded by MemoryWindows
  std::uint64_t made_at = 0;        ///< a moment() of Stragglers

  [[nodiscard]] static SoftMr& from(ibv_mr* mr) noexcept { return *static_cast<SoftMr*>(mr); }
};

struct SoftMw : ibv_mw {
  SoftMr* bound_to = nullptr;  ///< guarded by MemoryWindows
  bool was_bound = false;      ///< true after the first binding; guarded by MemoryWindows

  [[nodiscard]] static SoftMw& from(ibv_mw* mw) noexcept { return *static_cast<SoftMw*>(mw); }
};

}  // namespace rdmacomm::softdev
