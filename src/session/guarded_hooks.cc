#include "session/guarded_hooks.h"

#include <cxxabi.h>

#include <exception>
#include <string>

#include "base/logging.h"
#include "endpoint/hook_scope.h"
#include "rdmacomm/base/printable.h"

namespace rdmacomm {
namespace {

constexpr std::size_t kMaxExceptionText = 500;

/// The text of the exception stays in the log of this process: the Error may be sent to the peer.
Error hook_failed(const char* hook, const std::string& what) {
  RDMACOMM_LOG(ERROR) << "the hook " << hook << "() threw an exception: " << what;
  return make_error(Errc::kHookFailed, std::string("the hook ") + hook + "() threw an exception, see the log");
}

/// Empty: it did not throw.
template <typename Call>
std::optional<Error> guard(const char* hook, Call&& call) {
  const HookScope scope;
  try {
    call();
    return {};
  } catch (const abi::__forced_unwind&) {
    throw;  // pthread_exit(), which must not be held up
  } catch (const std::exception& thrown) {
    return hook_failed(hook, printable(thrown.what(), kMaxExceptionText));
  } catch (...) {
    return hook_failed(hook, "one that is no std::exception");
  }
}

template <typename Call>
Status guard_status(const char* hook, Call&& call) {
  Status status;
  if (const auto failed = guard(hook, [&] { status = call(); })) return *failed;
  return status;
}

template <typename Call>
void guard_endpoint(const char* hook, EndPoint& endpoint, Call&& call) {
  if (const auto failed = guard(hook, call)) endpoint.fail(*failed);
}

}  // namespace

Status GuardedHooks::init_session() {
  return guard_status("init_session", [&] { return hooks_.init_session(); });
}
Status GuardedHooks::lazy_config_hca(HcaConfig& hca, const PeerInfo& peer) {
  return guard_status("lazy_config_hca", [&] { return hooks_.lazy_config_hca(hca, peer); });
}
Status GuardedHooks::post_connecting(EndPoint& endpoint) {
  return guard_status("post_connecting", [&] { return hooks_.post_connecting(endpoint); });
}
void GuardedHooks::on_established(EndPoint& endpoint) {
  guard_endpoint("on_established", endpoint, [&] { hooks_.on_established(endpoint); });
}

void GuardedHooks::done(const char* name, CompletionHook hook, EndPoint& endpoint, const Completion& completion) {
  guard_endpoint(name, endpoint, [&] { (hooks_.*hook)(endpoint, completion); });
}
void GuardedHooks::on_send_done(EndPoint& endpoint, const Completion& completion) {
  done("on_send_done", &SessionHooks::on_send_done, endpoint, completion);
}
void GuardedHooks::on_recv_done(EndPoint& endpoint, const Completion& completion) {
  done("on_recv_done", &SessionHooks::on_recv_done, endpoint, completion);
}
void GuardedHooks::on_write_done(EndPoint& endpoint, const Completion& completion) {
  done("on_write_done", &SessionHooks::on_write_done, endpoint, completion);
}
void GuardedHooks::on_read_done(EndPoint& endpoint, const Completion& completion) {
  done("on_read_done", &SessionHooks::on_read_done, endpoint, completion);
}
void GuardedHooks::on_atomic_done(EndPoint& endpoint, const Completion& completion) {
  done("on_atomic_done", &SessionHooks::on_atomic_done, endpoint, completion);
}
void GuardedHooks::on_recv_write_imm_done(EndPoint& endpoint, const Completion& completion) {
  done("on_recv_write_imm_done", &SessionHooks::on_recv_write_imm_done, endpoint, completion);
}
void GuardedHooks::on_failed(EndPoint& endpoint, const Completion& completion) {
  done("on_failed", &SessionHooks::on_failed, endpoint, completion);
}

void GuardedHooks::on_disconnected(EndPoint& endpoint, const Status& why) {
  guard_endpoint("on_disconnected", endpoint, [&] { hooks_.on_disconnected(endpoint, why); });
  on_ended(endpoint, why);
}
void GuardedHooks::on_ended(EndPoint& endpoint, const Status& why) {
  guard_endpoint("on_ended", endpoint, [&] { hooks_.on_ended(endpoint, why); });
}
void GuardedHooks::on_receives_low(ReceivePool& pool) {
  (void)guard("on_receives_low", [&] { hooks_.on_receives_low(pool); });
}
void GuardedHooks::on_connect_failed(const std::string& peer, const Error& why) {
  (void)guard("on_connect_failed", [&] { hooks_.on_connect_failed(peer, why); });
}

}  // namespace rdmacomm
