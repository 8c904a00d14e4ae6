// rdma_session.h - what server and client sessions have in common.
// Layer: session. Uses: base, device, connector, endpoint.
#pragma once

#include <concepts>
#include <memory>
#include <typeinfo>
#include <utility>
#include <vector>

#include "rdmacomm/base/deadline.h"
#include "rdmacomm/base/result.h"
#include "rdmacomm/device/rdma_device.h"
#include "rdmacomm/endpoint/endpoint.h"
#include "rdmacomm/session/session_hooks.h"
#include "rdmacomm/session/session_options.h"

namespace rdmacomm {

class SessionCore;

/// A device, the endpoints on it, and one control thread that watches their connections: a peer that dies is
/// noticed by that, whatever its queue pairs do. A resource: neither copyable nor movable.
///
/// Threads: all functions from any thread.
/// Lifetime: a class that derives from ServerSession or ClientSession and overrides hooks must be stopped before its
/// own members go, or hooks would be called on an object half destroyed: make it with make_session(), which sees to
/// that, or call stop() first thing in its destructor. One that is destroyed while it runs says so in the log. Endpoints may
/// outlive the session, ended.
class RDMASession : public SessionHooks {
 public:
  RDMASession(const RDMASession&) = delete;
  RDMASession& operator=(const RDMASession&) = delete;
  ~RDMASession() override;

  /// Ends everything: refuses newcomers, ends connect() and all waits with kStopped, stops the endpoints, and waits
  /// until the last hook has returned and all threads of the session have ended. Called by a hook it does not wait.
  /// A stopped session stays so. Calling it again is harmless.
  void stop();
  /// Whether stop() was called.
  [[nodiscard]] bool stopped() const noexcept;

  /// The endpoints that are established and have not ended.
  [[nodiscard]] std::vector<std::shared_ptr<EndPoint>> endpoints() const;
  /// The device; nullptr before start() or the first connect().
  [[nodiscard]] std::shared_ptr<RDMADevice> device() const;
  [[nodiscard]] const SessionOptions& options() const noexcept;

  void on_connect_failed(const std::string& peer, const Error& why) override;

 protected:
  friend class SessionCore;  // of another session, with SessionOptions::queues_of
  enum class Role : std::uint8_t { kServer, kClient };
  RDMASession(Role role, SessionOptions options);
  /// For the destructor of the class `destroyed_as`: stop(), and a line in the log if a class derived from it is gone already
  /// although its hooks were still called.
  void stop_at_end(const std::type_info& destroyed_as);

  const std::unique_ptr<SessionCore> core_;
};

/// Stops a session, then deletes it: in this order no hook meets an object half destroyed.
struct StopAndDelete {
  void operator()(RDMASession* session) const {
    session->stop();
    delete session;
  }
};
template <std::derived_from<RDMASession> Session>
using SessionPtr = std::unique_ptr<Session, StopAndDelete>;

/// Makes a session of a class of the application's. The arguments are those of its constructor.
template <std::derived_from<RDMASession> Session, typename... Arguments>
[[nodiscard]] SessionPtr<Session> make_session(Arguments&&... arguments) {
  return SessionPtr<Session>(new Session(std::forward<Arguments>(arguments)...));
}

}  // namespace rdmacomm
