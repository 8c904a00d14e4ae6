// soft_pd.h - protection domains: a number that registrations and queue pairs share; thread domains.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>

namespace rdmacomm::softdev {

struct SoftTd : ibv_td {
  std::atomic<int> users{0};  ///< number of parent domains

  [[nodiscard]] static SoftTd& from(ibv_td* td) noexcept { return *static_cast<SoftTd*>(td); }
};

/// A parent domain has the same number as its original domain.
struct SoftPd : ibv_pd {
  std::uint32_t number = 0;
  std::atomic<int> users{0};
  SoftPd* parent = nullptr;
  SoftTd* thread_domain = nullptr;

  [[nodiscard]] static SoftPd& from(ibv_pd* pd) noexcept { return *static_cast<SoftPd*>(pd); }
};

}  // namespace rdmacomm::softdev
