// node.h - one node of a mesh, from its first connection to its end.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/descriptor_set.h"
#include "mesh_comm_service/cluster.h"
#include "mesh_comm_service/connections.h"
#include "mesh_comm_service/node_result.h"
#include "mesh_comm_service/peer.h"
#include "support/connection_flags.h"
#include "support/host_pace.h"
#include "support/mode_flags.h"
#include "support/tick_clock.h"

namespace rdmacomm::mesh {

enum class OnFailure : std::uint8_t { kStop, kContinue };

/// The options of a node. A value.
struct NodeOptions {
  int rank = 0;
  int nodes = 0;
  Terms terms = {};
  HostPort listen = {};
  /// Finds the addresses of all nodes, once this one listens at `port`.
  std::function<Result<Cluster>(std::uint16_t port)> find_cluster = {};
  programs::ConnectionFlags connection = {};
  programs::ModeFlags modes = {};
  OnFailure on_failure = OnFailure::kStop;
  std::chrono::milliseconds connect_timeout{10'000};
  /// Gets the results of this node, once they are known.
  std::function<void(const NodeResult&)> on_result = {};
  /// Gets the results of all nodes, by rank. Called on the collecting node only: the first one that is here.
  std::function<Status(const std::vector<NodeResult>&)> on_results = {};
};

/// Connects to all other nodes, accepts connections from them, sends and receives, and reports its results. All
/// decisions are made on its own thread, which calls run(). The threads of the sessions transfer the traffic (Link) and
/// report events (NodeEvents).
///
///   kConnecting  until all nodes that are connected have endpoints to each other, and have reported it (kReady)
///   kRunning     until all traffic from and to nodes that are connected is complete and both peers know it (kFinished ->
///                kChecked, for each ordered pair)
///   kClosing     until the lowest rank that is here has all results (kResult) and sends the end (kOver)
///
/// If a node is lost, its name is printed on standard error. Then the run continues without it (OnFailure::kContinue),
/// or ends (kStop). A node that comes back during the traffic connects to all others, and they connect to it again.
class Node {
 public:
  explicit Node(NodeOptions options);
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  /// Runs the node until its end.
  /// Returns  kPeerLost: a node was lost, with kStop; or all other nodes were lost; std::errc::io_error: messages
  ///          differed from the sent ones; or as Connections::listen, find_cluster and on_results
  [[nodiscard]] Status run();

 private:
  enum class Phase : std::uint8_t { kConnecting, kRunning, kClosing, kOver };

  // node.cc: the loop and the phases
  Status open();
  void loop();
  void advance();
  void finish_connecting();
  void begin_traffic();
  void begin_traffic_to(Peer& peer);
  void look_at_traffic();
  void settle(Peer& peer);
  void begin_closing();
  void look_at_results();
  void tell_moment(Introduction& self) const;
  void fail(const Status& why);
  void note_corruption(const Status& found);
  [[nodiscard]] NodeResult measured() const;

  // node_peers.cc: nodes that connect and disconnect
  void handle(NodeEvent event);
  void welcome(Peer& peer, NodeEvent& event);
  void connected(Peer& peer, NodeEvent& event);
  [[nodiscard]] bool is_second(const Peer& peer, const EndPoint& endpoint);
  bool introduce(Peer& peer, const EndPoint& endpoint);
  void refused(const Status& why);
  void connect_to(Peer& peer);
  void not_reached(Peer& peer, const NodeEvent& event);
  void look_for_the_right_ones();
  void look_if_here(Peer& peer);
  void close_mailbox(Peer& peer);
  void endpoint_ended(Peer& peer, const NodeEvent& event);
  void forget_unproven(Peer& peer, const std::string& why);
  void link_in_trouble(Peer& peer, const NodeEvent& event);
  void look_at_troubles();
  void lose(Peer& peer, const std::string& why);
  void end_life(Peer& peer);
  void keep_figures(Peer& peer);
  void check_anybody_left();
  void say(const std::string& what) const;

  // node_mail.cc: messages between nodes
  void read_mail();
  void read_mail_of(Peer& peer);
  void take(Peer& peer, Mail mail);
  void stop_asked(const Mail& mail);
  void send(Peer& peer, const Mail& mail);

  template <typename Function>
  void for_each_here(Function&& function) {
    for (Peer& peer : peers_) {
      if (peer.state == Peer::State::kHere) function(peer);
    }
  }
  [[nodiscard]] Peer* find(int rank);
  [[nodiscard]] bool all_here(bool (*is)(const Peer&)) const;

  const NodeOptions options_;
  const programs::TickClock clock_;
  std::unique_ptr<NodeEvents> events_;
  std::unique_ptr<DescriptorSet> descriptors_;
  std::unique_ptr<Connections> connections_;
  std::atomic<bool> running_{false};
  std::atomic<std::uint64_t> until_ticks_{0};

  // Used only by the node's own thread.
  Phase phase_ = Phase::kConnecting;
  Status outcome_;
  Status corruption_;
  programs::HostPace seconds_;  // limits the lines about second processes of a node
  std::vector<Peer> peers_;     // by rank, without this node
  std::vector<int> has_mail_;
  Deadline read_all_mail_ = Deadline::after({});
  Deadline connected_by_ = Deadline::never();
  std::chrono::steady_clock::time_point began_{};
  std::uint64_t setup_us_ = 0;
  std::uint64_t cpu_us_at_start_ = 0;
  NodeResult result_;
  int result_sent_to_ = -1;
};

}  // namespace rdmacomm::mesh
