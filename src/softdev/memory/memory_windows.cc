#include "softdev/memory/memory_windows.h"

#include <cerrno>

#include "softdev/memory/soft_pd.h"

namespace rdmacomm::softdev {
namespace {

constexpr unsigned kGranted = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

bool can_be_bound(const SoftMw& window, const MemoryWindows::Binder& qp, const ibv_mw_bind_info& info) {
  const SoftMr& mr = SoftMr::from(info.mr);
  const std::uint64_t offset = info.addr - mr.iova;
  const bool inside = offset <= mr.length && info.length <= mr.length - offset;
  const bool changes = (info.mw_access_flags & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  const std::uint32_t pd = SoftPd::from(window.pd).number;
  return inside && (mr.access & IBV_ACCESS_MW_BIND) != 0 && (!changes || (mr.access & IBV_ACCESS_LOCAL_WRITE) != 0) &&
         // Source: InfiniBand specification, volume 1, o10-36.2.2, as the kernel's rxe has it.
         ((info.mw_access_flags & IBV_ACCESS_ZERO_BASED) == 0 || window.type == IBV_MW_TYPE_2) &&
         pd == SoftPd::from(mr.pd).number && pd == qp.pd;
}

}  // namespace

int MemoryWindows::add(SoftMw& window) {
  const std::uint32_t key = registrations_.reserve();
  if (key == 0) return ENOMEM;
  window.rkey = window.handle = key;
  const std::scoped_lock lock(mutex_);
  by_place_[place_of(key)] = &window;
  return 0;
}

void MemoryWindows::remove(SoftMw& window) {
  {
    const std::scoped_lock lock(mutex_);
    unbind_locked(window);
    by_place_.erase(place_of(window.handle));
  }
  wait_for_initiators_();
  stragglers_.defer(0, [this, key = window.handle] { registrations_.recycle(key); });
}

void MemoryWindows::unbind_locked(SoftMw& window) {
  if (window.bound_to == nullptr) return;
  registrations_.invalidate(window.handle);
  --window.bound_to->windows;
  window.bound_to = nullptr;
}

ibv_wc_status MemoryWindows::bind(const Binder& qp, const ibv_send_wr& wr) {
  SoftMw& window = SoftMw::from(wr.bind_mw.mw);
  const ibv_mw_bind_info& info = wr.bind_mw.bind_info;
  bool was_bound = false;
  {
    const std::scoped_lock lock(mutex_);
    was_bound = window.bound_to != nullptr;
    // A type 2 window must be invalidated before it is bound again.
    const bool other_key = wr.bind_mw.rkey >> 8 != window.handle >> 8;
    if (other_key || (was_bound && window.type == IBV_MW_TYPE_2)) return IBV_WC_MW_BIND_ERR;
    if (info.length != 0 && !can_be_bound(window, qp, info)) return IBV_WC_MW_BIND_ERR;
    unbind_locked(window);
  }
  // Waits without the lock: an initiator at work here may wait for the local serving thread, which takes the lock.
  if (was_bound) wait_for_initiators_();
  if (info.length == 0) return IBV_WC_SUCCESS;
  stragglers_.sweep();
  const std::scoped_lock lock(mutex_);
  // A stopped initiator may have read half of the previous entry of this window.
  if (window.was_bound && stragglers_.any()) return IBV_WC_MW_BIND_ERR;
  return bind_locked(window, qp, wr) ? IBV_WC_SUCCESS : IBV_WC_MW_BIND_ERR;
}

bool MemoryWindows::bind_locked(SoftMw& window, const Binder& qp, const ibv_send_wr& wr) {
  if (window.bound_to != nullptr) return false;  // another thread has bound it meanwhile
  const ibv_mw_bind_info& info = wr.bind_mw.bind_info;
  SoftMr& mr = SoftMr::from(info.mr);
  Registration registration = registrations_.find(mr.lkey);
  registration.pd = (registration.pd & ~kWithIova) | kOfWindow;
  registration.access = info.mw_access_flags & kGranted;
  registration.arena_offset += info.addr - registration.address;
  const bool zero_based = (info.mw_access_flags & IBV_ACCESS_ZERO_BASED) != 0;
  registration.address = zero_based ? 0 : info.addr;
  registration.shift += info.addr - registration.address;
  registration.length = info.length;
  registration.qpn = window.type == IBV_MW_TYPE_2 ? qp.qpn : 0;
  registrations_.replace(wr.bind_mw.rkey, registration);
  window.bound_to = &mr;
  window.was_bound = true;
  ++mr.windows;
  return true;
}

bool MemoryWindows::invalidate(std::uint32_t key, std::uint32_t qpn) {
  const std::scoped_lock lock(mutex_);
  const auto found = by_place_.find(place_of(key));
  if (found == by_place_.end()) return false;
  SoftMw& window = *found->second;
  const MrEntry& entry = registrations_.entries()[place_of(key)];
  if (entry.key.load(std::memory_order_relaxed) != key || entry.qpn != qpn) return false;
  unbind_locked(window);
  return true;
}

bool MemoryWindows::any_bound_to(const SoftMr& mr) {
  const std::scoped_lock lock(mutex_);
  return mr.windows != 0;
}

}  // namespace rdmacomm::softdev
