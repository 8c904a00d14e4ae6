// cm_private_data.h - what a connection request of rdma_cm and its answer carry of ours. Private to the layer.
// Wire form: docs/wire_format.md "rdma_cm private data"
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rdmacomm/result.h"

namespace rdmacomm {

/// What a connection is for. The numbers travel.
enum class CmPurpose : std::uint16_t {
  kMessages = 1,   ///< the messages of a connector
  kQueuePair = 2,  ///< one queue pair of an endpoint
};

/// Fits into what rdma_cm leaves to its users on every transport: 56 bytes of a request. A value.
struct CmPrivateData {
  CmPurpose purpose = CmPurpose::kMessages;
  /// In the answer to a request for kMessages: a random number by which requests for its queue pairs prove that they
  /// belong to it. In those requests: that number.
  std::uint64_t token = 0;
  std::uint32_t qpn = 0;         ///< kQueuePair: the requester's queue pair, as its card has it
  std::uint16_t slots = 0;       ///< kMessages: receives that the sender of this has posted
  std::uint32_t slot_bytes = 0;  ///< kMessages: the size of each

  /// 28 bytes: magic, version, and the fields in the order above.
  [[nodiscard]] std::vector<std::byte> encode() const;
  /// Bytes after the first 28 are padding of the transport's.
  /// Returns  kBadMessage: no private data of ours, or an unknown purpose; kVersionMismatch: the context names both
  [[nodiscard]] static Result<CmPrivateData> decode(std::span<const std::byte> bytes);
};

}  // namespace rdmacomm
