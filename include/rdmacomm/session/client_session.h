// client_session.h - connects to servers.
// Layer: session. Uses: base, connector, endpoint.
#pragma once

#include <memory>

#include "rdmacomm/session/rdma_session.h"

namespace rdmacomm {

/// The side that connects. See RDMASession for threads and lifetime, SessionHooks for what can be overridden.
class ClientSession : public RDMASession {
 public:
  explicit ClientSession(SessionOptions options = {}) : RDMASession(Role::kClient, std::move(options)) {}
  ~ClientSession() override { stop_at_end(typeid(ClientSession)); }

  /// Connects to options().address. May be called often, also by several threads: each call makes an endpoint.
  /// The first call opens the device, where options().device leaves it open the one on the route to the server: all
  /// endpoints of a session are on one device.
  /// Returns  kInvalidArgument: SessionOptions::validate(); kPeerRefused: the server said no (the context has its
  ///          reason); kServerBusy: too many clients waited for it at once, until connect_timeout; kHookFailed; kStopped; or as open_device(), init_session(), TCPConnector::connect or CmConnector::connect, the
  ///          hooks, EndPoint::create and EndPoint::connect. kInvalidArgument also: rdma_cm goes by another device, port
  ///          or GID than those asked for
  [[nodiscard]] Result<std::shared_ptr<EndPoint>> connect();
  /// The same with another server.
  [[nodiscard]] Result<std::shared_ptr<EndPoint>> connect(const HostPort& server);
};

}  // namespace rdmacomm
