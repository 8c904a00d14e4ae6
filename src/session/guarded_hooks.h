// guarded_hooks.h - the hooks of a session as the library calls them. Private to the session layer.
#pragma once

#include <memory>
#include <string>

#include "rdmacomm/session.h"

namespace rdmacomm {

/// Passes each call on to the application's hooks. The only place that calls them: so what holds for every call is
/// here. An exception becomes kHookFailed, which ends what the hook was called for; while a hook runs, its thread is in
/// a HookScope; on_ended follows on_disconnected.
/// Threads: as SessionHooks.
class GuardedHooks {
 public:
  /// wants_completions  the application has said that on_completion does something
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
