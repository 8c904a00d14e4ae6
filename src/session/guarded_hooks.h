// guarded_hooks.h - calls the hooks of a session. Private to the session layer.
#pragma once

#include <memory>
#include <string>

#include "rdmacomm/session.h"

namespace rdmacomm {

/// Passes each call on to the application's hooks. All calls of hooks are made here, so that common rules are in one
/// place: an exception becomes kHookFailed; the thread is in a HookScope while a hook runs; on_ended follows
/// on_disconnected.
/// Threads: as SessionHooks.
class GuardedHooks {
 public:
  /// wants_completions  whether on_completion is known to do something
  GuardedHooks(std::shared_ptr<SessionHooks> hooks, bool wants_completions)
      : hooks_(std::move(hooks)), wants_completions_(wants_completions) {}

  [[nodiscard]] bool wants_completions() const noexcept { return wants_completions_; }

  [[nodiscard]] Status init_session(const RDMADevice& device) const;
  [[nodiscard]] Status lazy_config_hca(HcaConfig& hca, const PeerInfo& peer) const;
  [[nodiscard]] Status post_connecting(const EndPoint& endpoint) const;
  void on_established(const EndPoint& endpoint) const;
  void on_completion(const EndPoint& endpoint, const Completion& completion) const;
  void on_disconnected(const EndPoint& endpoint, const Status& why) const;
  void on_ended(const EndPoint& endpoint, const Status& why) const;
  void on_receives_low(const ReceivePool& pool) const;
  [[nodiscard]] bool on_connect_failed(const std::string& peer, const Error& why) const;

 private:
  const std::shared_ptr<SessionHooks> hooks_;
  const bool wants_completions_;
};

}  // namespace rdmacomm
