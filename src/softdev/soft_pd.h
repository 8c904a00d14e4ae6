// soft_pd.h - a protection domain: a number that registrations and queue pairs share.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>

namespace rdmacomm::softdev {

struct SoftPd : ibv_pd {
  std::uint32_t number = 0;
  std::atomic<int> users{0};

  [[nodiscard]] static SoftPd& from(ibv_pd* pd) noexcept { return *static_cast<SoftPd*>(pd); }
};

}  // namespace rdmacomm::softdev
