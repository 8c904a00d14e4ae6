// memory_windows.h - the memory windows of one context: what they are bound to, and when no more.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "softdev/memory/mr_table.h"
#include "softdev/memory/soft_mr.h"
#include "softdev/memory/stragglers.h"

namespace rdmacomm::softdev {

/// A window has a place in the table of registrations, empty while it is not bound. The upper 24 bits of its key stay; each binding
/// has other lower bits: chosen by the caller for a window of type 2, counted for one of type 1. A
/// window of type 2 serves the queue pair that bound it, and nobody else (type 2B).
/// Threads: any.
class MemoryWindows {
 public:
  /// The queue pair that binds a window.
  struct Binder {
    std::uint32_t qpn;
    std::uint32_t pd;
  };
  /// wait_for_initiators  waits until no initiator is at work any more that may have found what was bound before
  MemoryWindows(MrTable& registrations, Stragglers& stragglers, std::function<void()> wait_for_initiators)
      : registrations_(registrations), stragglers_(stragglers), wait_for_initiators_(std::move(wait_for_initiators)) {}
  MemoryWindows(const MemoryWindows&) = delete;
  MemoryWindows& operator=(const MemoryWindows&) = delete;

  /// Gives a new window its place and its key. 0, or an errno value.
  [[nodiscard]] int add(SoftMw& window);
  void remove(SoftMw& window);

  /// Carries out IBV_WR_BIND_MW, posted at `qp`: binds, or with no length ends what was bound.
  [[nodiscard]] ibv_wc_status bind(const Binder& qp, const ibv_send_wr& wr);
  /// Ends the binding with this key of a window of type 2, for a request of `qpn` itself or of its initiator.
  /// false: there is no such binding.
  [[nodiscard]] bool invalidate(std::uint32_t key, std::uint32_t qpn);
  [[nodiscard]] bool any_bound_to(const SoftMr& mr);

 private:
  void unbind_locked(SoftMw& window);
  [[nodiscard]] bool bind_locked(SoftMw& window, const Binder& qp, const ibv_send_wr& wr);

  MrTable& registrations_;
  Stragglers& stragglers_;
  const std::function<void()> wait_for_initiators_;
  std::mutex mutex_;
  std::map<std::uint32_t, SoftMw*> by_place_;
};

}  // namespace rdmacomm::softdev
