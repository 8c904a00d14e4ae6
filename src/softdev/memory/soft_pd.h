// soft_pd.h - protection domains: a number that registrations and queue pairs share; thread domains.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <utility>

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

/// An object's use of a protection domain: the domain cannot be deallocated meanwhile.
class PdUse {
 public:
  PdUse() = default;
  explicit PdUse(SoftPd& pd) noexcept : pd_(&pd) { ++pd.users; }
  PdUse(PdUse&& other) noexcept : pd_(std::exchange(other.pd_, nullptr)) {}
  PdUse& operator=(PdUse&& other) noexcept {
    std::swap(pd_, other.pd_);
    return *this;
  }
  PdUse(const PdUse&) = delete;
  PdUse& operator=(const PdUse&) = delete;
  ~PdUse() {
    if (pd_ != nullptr) --pd_->users;
  }

 private:
  SoftPd* pd_ = nullptr;
};

}  // namespace rdmacomm::softdev
