// queue_pair_link.h - connects a queue pair through a connection manager.
// Layer: verbs. Uses: base.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "rdmacomm/result.h"

namespace rdmacomm::verbs {

/// Values that the connection manager sends to the peer of a queue pair, or applies to the queue pair. A value.
struct LinkOptions {
  std::uint8_t initiator_depth = 0;      ///< READs and atomics outstanding as the initiator
  std::uint8_t responder_resources = 0;  ///< the same as the responder
  std::uint8_t retry_count = 7;          ///< 0..7
  std::uint8_t rnr_retry = 7;            ///< 0..6; 7: for ever
  std::uint8_t traffic_class = 0;        ///< 0..255; 0: the system's
};

/// Takes one queue pair from INIT to RTS through a connection manager: begin(), then the transitions to RTR and RTS
/// with attributes(), then finish(). If the device moves the queue pair by itself (iWARP), only begin() and finish()
/// are called. A resource. It outlives the queue pair, whose connection ends with it.
/// Threads: one at a time.
class QueuePairLink {
 public:
  QueuePairLink() = default;
  QueuePairLink(const QueuePairLink&) = delete;
  QueuePairLink& operator=(const QueuePairLink&) = delete;
  virtual ~QueuePairLink() = default;

  /// Connects this queue pair to the peer's, or waits for the peer to connect.
  [[nodiscard]] virtual Status begin(const LinkOptions& options) = 0;
  /// Whether the device itself moves the queue pair to RTS, no later than in finish().
  [[nodiscard]] virtual bool device_moves_queue_pair() const noexcept = 0;
  /// Fills in the values that the connection manager has negotiated for the transition to `to`. INIT: the P_Key's
  /// index; RTR and RTS: address vector, path MTU, the peer's queue pair number and first packet sequence numbers.
  [[nodiscard]] virtual Status attributes(ibv_qp_state to, ibv_qp_attr& attributes) = 0;
  /// Tells the peer that the local queue pair is ready, and waits until the peer's is ready.
  [[nodiscard]] virtual Status finish() = 0;
};

}  // namespace rdmacomm::verbs
