// connections.h - one node's sessions: a server for all others, and a client to each of them.
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

/// What all of a node's sessions have in common. A value.
struct ConnectionParts {
  Introduction self = {};  ///< but for `running` and `remaining_us`, which the moment decides
  SessionOptions session = {};
  AdapterConfig adapter = {};
  programs::ModeFlags modes = {};
  NodeEvents* events = nullptr;
  const programs::TickClock* clock = nullptr;
  /// What a newcomer is told: called on a thread of the server session.
  std::function<void(Introduction&)> moment = {};
};

/// Every ordered pair of nodes has an endpoint: to each other node this one connects a client session, over which its
/// own traffic goes; the others' traffic to it arrives at its server session. A resource. Threads: listen, connect and
/// stop from one; what happens is told by NodeEvents.
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
  /// Connects to node `rank`, on a thread of its own: kConnected or kNotReached tells of it. Not while that is under
  /// way.
  void connect(int rank, const HostPort& to);
  /// Whether an endpoint comes from an address of the mesh: one in the list, or one by which this node has reached
  /// another.
  [[nodiscard]] bool is_of_known_host(const EndPoint& endpoint) const;
  /// How many ends of traffic there are: one for each endpoint.
  [[nodiscard]] std::size_t links() const;
  /// Newcomers are refused from now on.
  void refuse_new_connections();
  /// Ends all endpoints with a goodbye, and all threads.
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
  mutable std::mutex mutex_;                   // guards what follows
  std::vector<std::shared_ptr<Link>> links_;   // of all endpoints that there are: requests name them
  std::set<const Link*> attached_;             // of these, that have an endpoint
  PendingHandshakes pending_;                  // of the others' traffic
  std::condition_variable place_may_be_free_;  // in pending_
  // By rank: the endpoint that this node has connected. The peer is the process at the node's address in the list.
  std::map<int, WeakEndPoint> reached_;
  // The sessions, which use what is above.
  std::optional<ServerSession> server_;
  std::map<int, std::unique_ptr<ClientParts>> clients_;
  std::map<int, std::thread> connecting_;
};

}  // namespace rdmacomm::mesh
