// remote_region.h - a range of registered memory of a peer.
// Layer: memory. Uses: base.   Wire form: docs/wire_format.md "RemoteRegion"
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "rdmacomm/result.h"

namespace rdmacomm {

/// A range of remote memory, for WRITE, READ and atomics. A value. It is valid while the peer keeps its RDMABuffer. It
/// grants no access by itself: the peer's registration decides.
struct RDMACOMM_API RemoteRegion {
  /// The number of bytes that encode() returns.
  static constexpr std::size_t kWireBytes = 20;

  std::uint64_t address = 0;  ///< the peer's virtual address
  std::uint64_t length = 0;   ///< bytes
  std::uint32_t rkey = 0;     ///< the remote key of the registration; the peer's device checks it

  /// `length_` bytes from `offset` on. kInvalidArgument: the range is not inside this region.
  [[nodiscard]] Result<RemoteRegion> slice(std::uint64_t offset, std::uint64_t length_) const;
  /// The same region from `offset` on, unchecked: for hot paths whose offsets are valid. The peer's device checks the
  /// bounds again.
  [[nodiscard]] RemoteRegion slice_unchecked(std::uint64_t offset) const noexcept {
    return {address + offset, length - offset, rkey};
  }

  /// The bytes to send to the peer. HcaConfig::publish() does that, too.
  [[nodiscard]] std::array<std::byte, kWireBytes> encode() const;
  /// Makes a region from bytes that were received from a peer.
  /// Returns  kBadMessage: their number is not kWireBytes, or address + length wraps around
  [[nodiscard]] static Result<RemoteRegion> decode(std::span<const std::byte> bytes);
  [[nodiscard]] std::string to_text() const;  ///< "[0x7f..., 4096 bytes, rkey 0x101]"
};

}  // namespace rdmacomm
