// hook_scope.h - whether the calling thread is in a hook of an application. Private to the library.
#pragma once

namespace rdmacomm {

/// While an object exists, its thread is in a hook of any session. Used so that no hook ever waits for the end of
/// another hook. Nests.
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
