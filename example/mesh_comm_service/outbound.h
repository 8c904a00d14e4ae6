// outbound.h - the initiator of the traffic to one node.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "mesh_comm_service/link.h"
#include "mesh_comm_service/mail.h"
#include "support/latency_histogram.h"
#include "support/tick_clock.h"

namespace rdmacomm::mesh {

/// The results of the traffic. A value.
struct OutboundFigures {
  std::uint64_t messages = 0;  ///< completed
  std::uint64_t bytes = 0;
  std::uint64_t corrupt = 0;  ///< in data from READs
  std::string difference = {};
  std::uint64_t elapsed_ns = 0;
  programs::LatencyHistogram latency_ns = {};
};

/// Posts messages, up to Terms::depth at a time, until all are complete or the time is over. See Link.
class Outbound final : public Link {
 public:
  Outbound(const LinkParts& parts, const programs::TickClock& clock) : Link(parts), clock_(clock) {}

  Status prepare(RDMADevice device, ProtectionDomain domain) override;
  void publish(HcaConfig&) const override {}
  Status attach(const EndPoint& endpoint) override;

  /// Begins. until_ticks  the end, if Terms::duration_us is set
  void start(std::uint64_t until_ticks);
  /// Checks whether the time is over. Needed if this only waits for a note from the peer, because then no completion
  /// triggers the check.
  void look_at_clock();
  [[nodiscard]] bool started() const;
  /// Whether all posted messages are complete, and no more will be posted.
  [[nodiscard]] bool finished() const;
  [[nodiscard]] OutboundFigures figures() const;

 private:
  void complete(const Completion& completion) override;
  void pump();
  [[nodiscard]] bool may_post();
  [[nodiscard]] bool post_next();
  [[nodiscard]] Outcome post_message(std::uint32_t length);
  void announce_progress();
  void message_done();
  void check_read();
  void note_arrived();
  [[nodiscard]] BufferSlice block(std::uint64_t message) const;
  [[nodiscard]] std::uint64_t slot(std::uint64_t message) const noexcept { return message % parts_.terms.depth; }

  const programs::TickClock& clock_;
  // Guarded by mutex_:
  RemoteRegion theirs_{};
  std::vector<std::uint64_t> posted_at_;
  std::uint64_t until_ticks_ = 0;
  std::uint64_t started_at_ = 0;
  std::uint64_t last_at_ = 0;
  bool started_ = false;
  bool time_over_ = false;
  bool finished_ = false;
  std::uint64_t posted_ = 0;
  std::uint64_t posted_bytes_ = 0;
  std::uint64_t complete_ = 0;
  std::uint64_t announced_ = 0;  // the peer was told of WRITEs up to here
  std::uint64_t peer_has_ = 0;   // the peer has reported messages up to here as received
  std::uint64_t notes_received_ = 0;
  OutboundFigures figures_;
};

}  // namespace rdmacomm::mesh
