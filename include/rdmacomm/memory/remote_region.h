// remote_region.h - a range of a peer's registered memory.
// Layer: memory. Uses: base, verbs.   Wire form: docs/wire_format.md "RemoteRegion"
#pragma once

#include <cstdint>
#include <string>

#include "rdmacomm/base/result.h"
#include "rdmacomm/base/wire.h"

namespace rdmacomm {

/// What one side must know to WRITE to or READ from the other's memory. A value; it stays valid as long as
/// the peer keeps its RDMABuffer. It grants nothing by itself: the peer's registration decides.
struct RemoteRegion {
  std::uint64_t address = 0;  ///< the peer's virtual address
  std::uint64_t length = 0;   ///< bytes
  std::uint32_t rkey = 0;

  /// `length_` bytes from `offset` on. kInvalidArgument: they leave this region.
  [[nodiscard]] Result<RemoteRegion> slice(std::uint64_t offset, std::uint64_t length_) const;
  /// The same region from `offset` on, unchecked: for hot paths that know their bounds. The peer's device
  /// checks them again.
  [[nodiscard]] RemoteRegion from(std::uint64_t offset) const noexcept {
    return {address + offset, length - offset, rkey};
  }

  /// Appends the wire form: 20 bytes.
  void encode(WireWriter& writer) const;
  /// Takes the wire form off `reader`. kBadMessage: truncated, or address + length wraps around.
  [[nodiscard]] static Result<RemoteRegion> decode(WireReader& reader);
  [[nodiscard]] std::string to_text() const;  ///< "[0x7f..., 4096 bytes, rkey 0x101]"
};

}  // namespace rdmacomm
