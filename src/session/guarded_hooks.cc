#include "session/guarded_hooks.h"

#include <cxxabi.h>

#include <exception>
#include <optional>
#include <string>

#include "base/logging.h"
#include "base/printable.h"
#include "endpoint/hook_scope.h"

namespace rdmacomm {
namespace {

constexpr std::size_t kMaxExceptionText = 500;

/// The text of the exception is only logged locally, because the Error may be sent to the peer.
Error hook_failed(const char* hook, const std::string& what) {
  RDMACOMM_LOG(ERROR) << "the hook " << hook << "() threw an exception: " << what;
  return make_error(Errc::kHookFailed, std::string("the hook ") + hook + "() threw an exception, see the log");
}

/// Calls `call`. Returns  the error if it throws; else empty.
template <typename Call>
std::optional<Error> guard(const char* hook, Call&& call) {
  const HookScope scope;
  try {
    call();
    return {};
  } catch (const abi::__forced_unwind&) {
    throw;  // pthread_exit() uses this exception, which must be rethrown
  } catch (const std::exception& thrown) {
    return hook_failed(hook, printable(thrown.what(), kMaxExceptionText));
  } catch (...) {
    return hook_failed(hook, "its type is not derived from std::exception");
  }
}

template <typename Call>
Status guard_status(const char* hook, Call&& call) {
  Status status;
  if (const auto failed = guard(hook, [&] { status = call(); })) return *failed;
  return status;
}

template <typename Call>
void guard_endpoint(const char* hook, const EndPoint& endpoint, Call&& call) {
  if (const auto failed = guard(hook, call)) endpoint.abort(*failed);
}

}  // namespace

Status GuardedHooks::init_session(const RDMADevice& device) const {
  return guard_status("init_session", [&] { return hooks_->init_session(device); });
}
Status GuardedHooks::lazy_config_hca(HcaConfig& hca, const PeerInfo& peer) const {
  return guard_status("lazy_config_hca", [&] { return hooks_->lazy_config_hca(hca, peer); });
}
Status GuardedHooks::post_connecting(const EndPoint& endpoint) const {
  return guard_status("post_connecting", [&] { return hooks_->post_connecting(endpoint); });
}
void GuardedHooks::on_established(const EndPoint& endpoint) const {
  guard_endpoint("on_established", endpoint, [&] { hooks_->on_established(endpoint); });
}
void GuardedHooks::on_completion(const EndPoint& endpoint, const Completion& completion) const {
  guard_endpoint("on_completion", endpoint, [&] { hooks_->on_completion(endpoint, completion); });
}
void GuardedHooks::on_disconnected(const EndPoint& endpoint, const Status& why) const {
  guard_endpoint("on_disconnected", endpoint, [&] { hooks_->on_disconnected(endpoint, why); });
  on_ended(endpoint, why);
}
void GuardedHooks::on_ended(const EndPoint& endpoint, const Status& why) const {
  guard_endpoint("on_ended", endpoint, [&] { hooks_->on_ended(endpoint, why); });
}
void GuardedHooks::on_receives_low(const ReceivePool& pool) const {
  (void)guard("on_receives_low", [&] { hooks_->on_receives_low(pool); });
}
bool GuardedHooks::on_connect_failed(const std::string& peer, const Error& why) const {
  bool handled = false;
  (void)guard("on_connect_failed", [&] { handled = hooks_->on_connect_failed(peer, why); });
  return handled;
}

}  // namespace rdmacomm
