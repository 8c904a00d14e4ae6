// guarded_hooks.h - the hooks of a session as the library calls them. Private to the session layer.
#pragma once

#include <optional>
#include <typeinfo>

#include "rdmacomm/session/session_hooks.h"

namespace rdmacomm {

/// Passes each call on to the application's hooks. The only place that calls them: so what holds for every call is here. An
/// exception becomes kHookFailed, which ends what the hook was called for; while a hook runs, its thread is in a HookScope;
/// on_ended follows on_disconnected.
/// Threads: as SessionHooks.
class GuardedHooks final : public SessionHooks {
 public:
  explicit GuardedHooks(SessionHooks& hooks) : hooks_(hooks) {}

  /// The application's class.
  [[nodiscard]] const std::type_info& type() const { return typeid(hooks_); }

  [[nodiscard]] Status init_session() override;
  [[nodiscard]] Status lazy_config_hca(HcaConfig& hca, const PeerInfo& peer) override;
  [[nodiscard]] Status post_connecting(EndPoint& endpoint) override;
  void on_established(EndPoint& endpoint) override;
  void on_send_done(EndPoint& endpoint, const Completion& completion) override;
  void on_recv_done(EndPoint& endpoint, const Completion& completion) override;
  void on_write_done(EndPoint& endpoint, const Completion& completion) override;
  void on_read_done(EndPoint& endpoint, const Completion& completion) override;
  void on_atomic_done(EndPoint& endpoint, const Completion& completion) override;
  void on_recv_write_imm_done(EndPoint& endpoint, const Completion& completion) override;
  void on_failed(EndPoint& endpoint, const Completion& completion) override;
  void on_disconnected(EndPoint& endpoint, const Status& why) override;
  void on_ended(EndPoint& endpoint, const Status& why) override;
  void on_receives_low(ReceivePool& pool) override;
  void on_connect_failed(const std::string& peer, const Error& why) override;

 private:
  using CompletionHook = void (SessionHooks::*)(EndPoint&, const Completion&);
  void done(const char* name, CompletionHook hook, EndPoint& endpoint, const Completion& completion);

  SessionHooks& hooks_;
};

}  // namespace rdmacomm
