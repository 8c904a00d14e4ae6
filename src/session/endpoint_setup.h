// endpoint_setup.h - the handshake that turns a connection into an endpoint. Private to the session layer.
#pragma once

#include <memory>

#include "channel/completion_queue.h"
#include "channel/receive_pool_core.h"
#include "connector/connector.h"
#include "device/device_core.h"
#include "endpoint/endpoint_core.h"
#include "rdmacomm/session.h"
#include "session/guarded_hooks.h"

namespace rdmacomm {

/// The functions that a session provides for an endpoint that is being set up. Called on the thread of the handshake.
class EndPointHost {
 public:
  virtual ~EndPointHost() = default;
  /// Whether one more endpoint is allowed. Called after the peer's hello, and at a server also its offer, was received.
  [[nodiscard]] virtual Status admit() = 0;
  /// The shared completion queue that a fitted configuration asks for.
  [[nodiscard]] virtual Result<std::shared_ptr<CompletionQueue>> shared_queue(const HcaConfig& config) = 0;
  /// The receive pool that a fitted configuration asks for.
  [[nodiscard]] virtual Result<std::shared_ptr<ReceivePoolCore>> receive_pool(const HcaConfig& config) = 0;
  /// Serves further completion queues of the endpoint, at any time of its life.
  [[nodiscard]] virtual std::shared_ptr<QueueServer> queue_server() = 0;
  /// Passes the endpoint to the thread that will serve it. Its queue pairs are in INIT, because the thread must know it
  /// before the first completion.
  [[nodiscard]] virtual Status enlist(const std::shared_ptr<EndPointCore>& endpoint) = 0;
};

/// hello -> (client) lazy_config_hca, queue pairs, offer -> (server) lazy_config_hca, queue pairs, answer -> (both)
/// connect, post_connecting, barrier. On failure the peer receives the reason. The endpoint is not marked as
/// established yet. If a step after post_connecting fails, on_ended was called before the return.
struct EndPointSetup {
  const GuardedHooks& hooks;
  const TcpOptions& tcp;
  std::shared_ptr<DeviceCore> device;
  const Hello& hello;
  EndPointHost& host;

  [[nodiscard]] Result<std::shared_ptr<EndPointCore>> as_client(const std::shared_ptr<Connector>& connector) const;
  [[nodiscard]] Result<std::shared_ptr<EndPointCore>> as_server(const std::shared_ptr<Connector>& connector) const;

 private:
  /// An endpoint that is being set up.
  struct Made {
    std::shared_ptr<EndPointCore> endpoint = nullptr;
    bool hook_was_called = false;  ///< post_connecting was called
  };
  Status client_steps(const std::shared_ptr<Connector>& connector, Made& made) const;
  Status server_steps(const std::shared_ptr<Connector>& connector, Made& made) const;
  [[nodiscard]] Result<std::shared_ptr<EndPointCore>> outcome(const Status& status, Connector& connector,
                                                              const Made& made, bool is_server) const;
  Status make_endpoint(const std::shared_ptr<Connector>& connector, const PeerInfo& peer,
                       std::shared_ptr<EndPointCore>& endpoint) const;
  Status wait_for_peer(Made& made) const;
  [[nodiscard]] Deadline deadline() const { return Deadline::after(tcp.handshake_timeout); }
};

/// Ends an endpoint that will not be established; calls on_ended if `hook_was_called`. Returns when nothing is
/// outstanding.
void end_unestablished(const GuardedHooks& hooks, const std::shared_ptr<EndPointCore>& endpoint, bool hook_was_called,
                       const Error& why);

}  // namespace rdmacomm
