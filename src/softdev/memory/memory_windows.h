// memory_windows.h - the memory windows of one context and their bindings.
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

/// Each window has a place in the table of registrations, which is empty while the window is not bound. The upper 24
/// bits of its key never change; each binding has different lower bits. The caller chooses them for a window of type 2;
/// for type 1 they are counted. A type 2 window can be used only through the queue pair that bound it (type 2B).
/// Threads: any.
class MemoryWindows {
 public:
  /// The queue pair that binds a window.
  struct Binder {
    std::uint32_t qpn;
    std::uint32_t pd;
  };
  /// wait_for_initiators  waits until all initiators are done that may have found the previous binding
  MemoryWindows(MrTable& registrations, Stragglers& stragglers, std::function<void()> wait_for_initiators)
      : registrations_(registrations), stragglers_(stragglers), wait_for_initiators_(std::move(wait_for_initiators)) {}
  MemoryWindows(const MemoryWindows&) = delete;
  MemoryWindows& operator=(const MemoryWindows&) = delete;

  /// Gives a new window its place and its key. Returns 0, or an errno value.
  [[nodiscard]] int add(SoftMw& window);
  void remove(SoftMw& window);

  /// Executes IBV_WR_BIND_MW, posted at `qp`. Length 0 ends the binding, any other length binds.
  [[nodiscard]] ibv_wc_status bind(const Binder& qp, const ibv_send_wr& wr);
  /// Ends the binding with this key of a type 2 window, for a request of queue pair `qpn` or of its initiator.
  /// Returns  false: no such binding.
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
