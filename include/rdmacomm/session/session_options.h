// session_options.h - what a session needs to know before it starts.
// Layer: session. Uses: base, device, connector.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "rdmacomm/base/result.h"
#include "rdmacomm/connector/connector_kind.h"
#include "rdmacomm/connector/handshake.h"
#include "rdmacomm/connector/tcp_options.h"
#include "rdmacomm/device/rdma_device.h"

namespace rdmacomm {

class RDMASession;

/// What a session is made with. A value.
struct SessionOptions {
  DeviceOptions device = {};  ///< which device to open, where `shared_device` is empty
  /// One that is open already. Sessions may share it, also with the application, which then reads its asynchronous events
  /// by RDMADevice::events() only.
  std::shared_ptr<RDMADevice> shared_device = nullptr;
  /// Another session on the same shared_device, whose completion queues of ThreadMode::kThreadPerCompletionQueue, and their
  /// threads, this one's endpoints use: with the same shared_queue_key, endpoints of both are on one queue. Hooks remain
  /// each session's own. It has been started; its stop() ends this one's endpoints on its queues. Lifetime: it is deleted
  /// after this one. nullptr: queues of this session's own.
  RDMASession* queues_of = nullptr;
  ConnectorKind connector = ConnectorKind::kAuto;  ///< by what peers meet; the same on both sides
  TcpOptions tcp = {};                             ///< also the time limits of rdma_cm
  /// How long an established peer may give no sign of life (sessions give one each second) before it counts as lost: its
  /// process is stopped, or hangs as a whole, or its host is gone. 3 s..1 h; 0: for ever, to stop peers in a debugger.
  std::chrono::milliseconds silent_peer_after{10'000};
  /// Server: where to listen; an empty host is every address, port 0 picks one. Client: the server.
  HostPort address = {};
  /// Server: connections that may be in the handshake at a time, 1..1024; more of them wait. Each takes a thread, for at
  /// most a few times tcp.handshake_timeout.
  int handshake_slots = 64;
  /// Server: of these, connections from one source, 1..1024. A source is one IPv4 address, or one IPv6 network of 64 bits.
  /// So a host that connects and says nothing cannot keep clients of other addresses out.
  int handshakes_per_source = 32;
  /// Server: how long a handshake keeps its slot for certain, 1 ms..1 h. If it takes longer, all slots are taken, and a client
  /// waits whose source has fewer of them, the source with the most slots loses one, chosen at random.
  std::chrono::milliseconds handshake_patience{1000};
  /// Server: connections that may wait for a slot, 1..4096. Each takes a descriptor. Beyond that the source with the most
  /// waiting connections loses one, chosen at random.
  int waiting_handshakes = 256;
  /// Endpoints at a time, 1..65536; a client beyond that is refused.
  int max_endpoints = 1024;
  /// Server: endpoints of one source at a time, 1..65536; a client beyond that is refused. More than max_endpoints is the same
  /// as max_endpoints: then one host can take all of them.
  int max_endpoints_per_source = 512;

  /// kInvalidArgument: a value outside its range; the context names it.
  [[nodiscard]] Status validate() const;
};

/// What is known of a peer before there are queue pairs. A value.
struct PeerInfo {
  std::string address = {};  ///< "10.0.0.2:41234"
  Hello hello = {};          ///< host name, process, session
  /// What the client's HcaConfig has as private data: a client speaks first, so the server can fit its own
  /// configuration to it. Empty on the client's side; see EndPoint::peer_private_data().
  std::vector<std::byte> private_data = {};
};

}  // namespace rdmacomm
