// server_session.h - accepts peers at any time until it is stopped.
// Layer: session. Uses: base, endpoint.
#pragma once

#include <cstdint>
#include <memory>

#include "rdmacomm/session/rdma_session.h"

namespace rdmacomm {

/// The side that listens. See RDMASession for threads and lifetime, SessionHooks for what can be overridden.
///
/// A connection that sends nothing, garbage, or half a handshake costs one of SessionOptions::handshake_slots until its
/// deadline; others are served meanwhile. However many of them come from one address, clients of other addresses get in; a
/// client for which no place is left is told kServerBusy.
class ServerSession : public RDMASession {
 public:
  explicit ServerSession(SessionOptions options = {}) : RDMASession(Role::kServer, std::move(options)) {}
  ~ServerSession() override { stop_at_end(typeid(ServerSession)); }

  /// Opens the device (where options().device leaves it open: the one that has options().address), listens, and returns;
  /// peers are accepted from then on. Once.
  /// Returns  kInvalidArgument: SessionOptions::validate(); kWrongState: started already; kStopped; or as
  ///          open_device(), init_session() and TCPListener::listen or CmListener::listen
  [[nodiscard]] Status start();
  /// The port that peers are accepted at; 0 before start().
  [[nodiscard]] std::uint16_t port() const;

  /// Waits for the next endpoint that has been established and not been handed out: for applications that drive
  /// themselves. One that the peer has left meanwhile is handed out too (what it did can still be polled), as far as
  /// it is in ThreadMode::kApplication; at most kMaxEndedUnclaimed of those are kept.
  /// Returns  kTimeout; kStopped
  [[nodiscard]] Result<std::shared_ptr<EndPoint>> wait_for_endpoint(Deadline deadline);
  static constexpr std::size_t kMaxEndedUnclaimed = 16;

  /// Ends the handshake of a client that is not established yet, which is told `why`; kServerBusy lets it try again. Returns at once:
  /// the hooks of its end follow. No effect if there is no such handshake any more. Also from hooks.
  ///
  /// peer_address  PeerInfo::address
  void end_handshake(const std::string& peer_address, const Error& why);
};

}  // namespace rdmacomm
