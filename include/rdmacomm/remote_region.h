// remote_region.h - a range of a peer's registered memory.
// Layer: memory. Uses: base.   Wire form: docs/wire_format.md "RemoteRegion"
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "rdmacomm/result.h"

namespace rdmacomm {

/// What one side must know to WRITE to or READ from the other's memory. A value. It is valid as long as the peer keeps
/// its RDMABuffer. It grants nothing by itself: the peer's registration decides.
struct RDMACOMM_API RemoteRegion {
  static constexpr std::size_t kWireBytes = 20;

  std::uint64_t address = 0;  ///< the peer's virtual address
  std::uint64_t length = 0;   ///< bytes
  std::uint32_t rkey = 0;

  /// `length_` bytes from `offset` on. kInvalidArgument: they are not inside this region.
  [[nodiscard]] Result<RemoteRegion> slice(std::uint64_t offset, std::uint64_t length_) const;
  /// The same region from `offset` on, unchecked: for hot paths that know their bounds. The peer's device
  /// checks them again.
  [[nodiscard]] RemoteRegion slice_unchecked(std::uint64_t offset) const noexcept {
    return {address + offset, length - offset, rkey};
  }

  /// The bytes to send to the peer. HcaConfig::publish() does that, too.
  [[nodiscard]] std::array<std::byte, kWireBytes> encode() const;
  /// Makes a region of bytes that have come from a peer.
  /// Returns  kBadMessage: not kWireBytes of them, or address + length wraps around
  [[nodiscard]] static Result<RemoteRegion> decode(std::span<const std::byte> bytes);
  [[nodiscard]] std::string to_text() const;  ///< "[0x7f..., 4096 bytes, rkey 0x101]"
};

}  // namespace rdmacomm
