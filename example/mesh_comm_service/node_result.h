// node_result.h - the measurements of one node.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/wire.h"
#include "rdmacomm/result.h"
#include "support/latency_histogram.h"
#include "support/statistics.h"

namespace rdmacomm::mesh {

/// The traffic from one node to another. A value.
struct PeerResult {
  std::uint32_t rank = 0;
  std::uint64_t messages = 0;  ///< complete at this node
  std::uint64_t bytes = 0;
  std::uint64_t counted_messages = 0;  ///< at the receiver; 0 if it does not count
  std::uint64_t counted_bytes = 0;
  std::uint64_t corrupt = 0;  ///< if the receiver was lost, includes messages from it
  std::uint64_t elapsed_ns = 0;
  programs::Summary latency_us = {};
  bool lost = false;  ///< the other node was lost and has not come back

  /// 10^9 bytes a second; 0 without traffic.
  [[nodiscard]] double gb_per_s() const noexcept;
  [[nodiscard]] double mops_per_s() const noexcept;
};

/// The figures of one node. A value.
struct NodeResult {
  std::uint32_t rank = 0;
  std::string address = {};
  std::uint32_t pid = 0;
  std::uint64_t setup_us = 0;  ///< from the first connection to the last
  std::uint64_t elapsed_ns = 0;
  std::uint64_t cpu_us = 0;  ///< of the whole process, during the traffic
  std::uint64_t memory_bytes = 0;
  std::uint64_t peak_memory_bytes = 0;
  std::uint32_t queue_pairs = 0;
  std::uint32_t threads = 0;
  programs::LatencyHistogram latency_ns = {};
  std::vector<PeerResult> peers = {};  ///< by rank

  [[nodiscard]] std::uint64_t messages() const noexcept;
  [[nodiscard]] std::uint64_t bytes() const noexcept;
  [[nodiscard]] double gb_per_s() const noexcept;
  [[nodiscard]] double mops_per_s() const noexcept;
  /// The rate of the slowest peer divided by that of the fastest, among peers that are connected; 1 if there are none, or if
  /// no data was sent.
  [[nodiscard]] double fairness() const noexcept;

  void encode(WireWriter& writer) const;
  /// kBadMessage: truncated, or out of range.
  [[nodiscard]] static Result<NodeResult> decode(WireReader& reader);
};

}  // namespace rdmacomm::mesh
