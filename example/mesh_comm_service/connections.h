// connections.h - the sessions of one node: a server for all other nodes, and a client for each of them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "mesh_comm_service/inbound.h"
#include "mesh_comm_service/node_events.h"
#include "mesh_comm_service/outbound.h"
#include "mesh_comm_service/pending_handshakes.h"
#include "mesh_comm_service/terms.h"
#include "rdmacomm/adapter.h"
#include "rdmacomm/session.h"
#include "support/host_pace.h"
#include "support/mode_flags.h"

namespace rdmacomm::mesh {

/// The settings that all sessions of a node share. A value.
struct ConnectionParts {
  Introduction self = {};  ///< except `running` and `remaining_us`, which `moment` sets
  SessionOptions session = {};
  AdapterConfig adapter = {};
  programs::ModeFlags modes = {};
  NodeEvents* events = nullptr;
  const programs::TickClock* clock = nullptr;
  /// Sets the current values of `running` and `remaining_us` for a new peer. Called on a thread of the server session.
  std::function<void(Introduction&)> moment = {};
};

/// Every ordered pair of nodes has an endpoint. This node connects a client session to each other node, and sends its
/// traffic over it. The traffic from the other nodes arrives at its server session. A resource.
/// Threads: listen, connect and stop from one. Events are reported through NodeEvents.
class Connections {
 public:
  explicit Connections(ConnectionParts parts);
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;
  ~Connections();

  /// Opens the device and listens. Returns  as ServerSession::start and Terms::check
  [[nodiscard]] Status listen(const HostPort& at);
  [[nodiscard]] std::uint16_t port() const;
  [[nodiscard]] RDMADevice device() const { return device_; }
  /// Connects to node `rank` on a separate thread, which reports kConnected or kNotReached. Not while an earlier call
  /// is in progress.
  void connect(int rank, const HostPort& to);
  /// Whether an endpoint comes from an address of the mesh: one in the list, or one at which this node has reached
  /// another node.
  [[nodiscard]] bool is_of_known_host(const EndPoint& endpoint) const;
  /// The number of links: one for each endpoint.
  [[nodiscard]] std::size_t links() const;
  /// From now on, new connections are refused.
  void refuse_new_connections();
  /// Closes all endpoints in order, and ends all threads.
  void stop();

 private:
  class Server;
  class Client;
  struct ClientParts;

  [[nodiscard]] LinkParts link_parts(int peer) const;
  void fit(HcaConfig& hca, const Link& link) const;
  void connect_now(ClientParts& client, int rank, const HostPort& to);
  Result<std::shared_ptr<Inbound>> admit(const PeerInfo& peer);
  [[nodiscard]] Status check_free(const Introduction& candidate, const std::string& address);
  [[nodiscard]] EndPoint reached(int rank) const;
  [[nodiscard]] bool knows_host(const std::string& address) const;
  [[nodiscard]] Status take_place(int rank, const std::string& address);
  void know_host(const std::string& address);
  void handshake_is_over(const std::string& address);
  void keep(std::shared_ptr<Link> link);
  void forget(Link& link);
  Status attach(const EndPoint& endpoint, Link& link);
  [[nodiscard]] static std::shared_ptr<Link> link_of(const EndPoint& endpoint);
  void ended(const EndPoint& endpoint);
  void drop(const EndPoint& endpoint);

  const ConnectionParts parts_;
  RDMADevice device_;
  std::atomic<bool> open_{true};
  mutable std::mutex mutex_;                   // guards the members below
  std::vector<std::shared_ptr<Link>> links_;   // of all endpoints: requests refer to them
  std::set<const Link*> attached_;             // the links that have an endpoint
  PendingHandshakes pending_;                  // of connections from other nodes
  std::condition_variable place_may_be_free_;  // in pending_
  // By rank: the endpoint that this node has connected. Its peer is the process at the node's address in the list.
  std::map<int, WeakEndPoint> reached_;
  // The sessions, which use the members above.
  std::optional<ServerSession> server_;
  std::map<int, std::unique_ptr<ClientParts>> clients_;
  std::map<int, std::thread> connecting_;
};

}  // namespace rdmacomm::mesh
