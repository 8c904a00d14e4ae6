// hook_scope.h - whether the calling thread is in a hook of an application. Private to the library.
#pragma once

namespace rdmacomm {

/// While one lives, its thread is in a hook: of whichever session, so that no hook ever waits for another hook's end.
/// Nests.
class HookScope {
 public:
  HookScope() noexcept { ++depth_; }
  HookScope(const HookScope&) = delete;
  HookScope& operator=(const HookScope&) = delete;
  ~HookScope() { --depth_; }

  [[nodiscard]] static bool on_this_thread() noexcept { return depth_ > 0; }

 private:
  static inline thread_local int depth_ = 0;
};

}  // namespace rdmacomm
