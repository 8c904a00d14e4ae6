// cm_private_data.h - our data in a connection request of rdma_cm and in its answer. Private to the layer.
// Wire form: docs/wire_format.md "rdma_cm private data"
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rdmacomm/result.h"

namespace rdmacomm {

/// The purpose of a connection. The numbers are sent on the wire.
enum class CmPurpose : std::uint16_t {
  kMessages = 1,   ///< the messages of a connector
  kQueuePair = 2,  ///< one queue pair of an endpoint
};

/// Fits into the private data that every transport leaves to users of rdma_cm: 56 bytes in a request. A value.
struct CmPrivateData {
  CmPurpose purpose = CmPurpose::kMessages;
  /// In the answer to a request for kMessages: a random number. Requests for its queue pairs carry the same number, to
  /// prove that they belong to it.
  std::uint64_t token = 0;
  std::uint32_t qpn = 0;         ///< kQueuePair: the requester's queue pair, as in its OFFER or ANSWER
  std::uint16_t slots = 0;       ///< kMessages: receives that the sender of this has posted
  std::uint32_t slot_bytes = 0;  ///< kMessages: the size of each

  /// 28 bytes: magic, version, and the fields in the order above.
  [[nodiscard]] std::vector<std::byte> encode() const;
  /// Bytes after the first 28 are padding by the transport.
  /// Returns  kBadMessage: not our private data, or an unknown purpose; kVersionMismatch: the context names both
  [[nodiscard]] static Result<CmPrivateData> decode(std::span<const std::byte> bytes);
};

}  // namespace rdmacomm
