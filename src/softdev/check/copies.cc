#include "softdev/check/copies.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "softdev/check/next.h"
#include "verbs/tool_access.h"

#undef ibv_reg_mr

namespace rdmacomm::softdev::check {

std::optional<Copy> Copies::take(ibv_pd* pd, std::uint64_t length) {
  if (length == 0 || length > kMost) return std::nullopt;
  const unsigned size_class = std::max<unsigned>(kSmallest, static_cast<unsigned>(std::bit_width(length - 1)));
  Domain& domain = domains_[pd];
  std::vector<Copy>& free = domain.free[size_class];
  if (free.empty() && !grow(pd, domain, size_class)) return std::nullopt;
  const Copy copy = free.back();
  free.pop_back();
  ++domain.in_use;
  return copy;
}

bool Copies::grow(ibv_pd* pd, Domain& domain, unsigned size_class) {
  constexpr std::uint64_t kSlab = std::uint64_t{1} << 20;
  const std::uint64_t block = std::uint64_t{1} << size_class;
  const std::uint64_t bytes = std::max(kSlab, block);
  if (bytes_ + bytes > kMost) return false;
  const int error = errno;
  RDMACOMM_BEHIND(ibv_reg_mr);
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto add = [&](int more) { return behind(pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE | more); };
  ibv_mr* mr = memory == MAP_FAILED ? nullptr : add(verbs::kAccessOfTool);
  if (mr == nullptr && memory != MAP_FAILED) mr = add(0);  // libibverbs before 28 knows no optional flags
  if (mr == nullptr) {
    if (memory != MAP_FAILED) munmap(memory, bytes);
    errno = error;
    return false;
  }
  bytes_ += bytes;
  domain.slabs.push_back({mr, bytes});
  for (std::uint64_t at = bytes; at != 0; at -= block)
    domain.free[size_class].push_back({static_cast<std::byte*>(memory) + at - block, mr->lkey, size_class, pd});
  return true;
}

void Copies::give_back(const Copy& copy) {
  const auto domain = domains_.find(copy.pd);
  if (domain == domains_.end()) return;
  domain->second.free[copy.size_class].push_back(copy);
  --domain->second.in_use;
}

void Copies::release(ibv_pd* pd) {
  const auto found = domains_.find(pd);
  if (found == domains_.end() || found->second.in_use != 0) return;
  RDMACOMM_BEHIND(ibv_dereg_mr);
  for (const Slab& slab : found->second.slabs) {
    void* const memory = slab.mr->addr;
    if (behind(slab.mr) != 0) continue;
    munmap(memory, slab.bytes);
    bytes_ -= slab.bytes;
  }
  domains_.erase(found);
}

Copies& copies() {
  static auto& one = *new Copies;  // never destroyed: the device may use it until the process ends
  return one;
}

}  // namespace rdmacomm::softdev::check
