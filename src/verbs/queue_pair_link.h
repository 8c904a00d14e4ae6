// queue_pair_link.h - connecting a queue pair with the help of a connection manager.
// Layer: verbs. Uses: base.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "rdmacomm/result.h"

namespace rdmacomm::verbs {

/// What the connection manager tells the peer of a queue pair, or does to it. A value.
struct LinkOptions {
  std::uint8_t initiator_depth = 0;      ///< READs and atomics outstanding as the initiator
  std::uint8_t responder_resources = 0;  ///< the same as the responder
  std::uint8_t retry_count = 7;          ///< 0..7
  std::uint8_t rnr_retry = 7;            ///< 0..6; 7: for ever
  std::uint8_t traffic_class = 0;        ///< 0..255; 0: the system's
};

/// The way of one queue pair from INIT to RTS where a connection manager has a part in it: begin(), then the moves to
/// RTR and RTS with attributes(), then finish(). Where the device moves the queue pair by itself (iWARP), begin() and
/// finish() are all. A resource: it outlives the queue pair, whose connection ends with it.
/// Threads: one at a time.
class QueuePairLink {
 public:
  QueuePairLink() = default;
  QueuePairLink(const QueuePairLink&) = delete;
  QueuePairLink& operator=(const QueuePairLink&) = delete;
  virtual ~QueuePairLink() = default;

  /// Reaches the peer's end of the connection of this queue pair, or is reached by it.
  [[nodiscard]] virtual Status begin(const LinkOptions& options) = 0;
  /// Whether the device itself moves the queue pair to RTS, no later than in finish().
  [[nodiscard]] virtual bool device_moves_queue_pair() const noexcept = 0;
  /// Fills in what the connection manager has settled for the move to `to`. INIT: the P_Key's index; RTR and RTS:
  /// address vector, path MTU, the peer's number and first packet sequence numbers.
  [[nodiscard]] virtual Status attributes(ibv_qp_state to, ibv_qp_attr& attributes) = 0;
  /// Tells the peer that this end is ready, and waits for it to be.
  [[nodiscard]] virtual Status finish() = 0;
};

}  // namespace rdmacomm::verbs
