// common.h - the common parts of client and server of ping_pong_test: memory, patterns, waiting.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ping_pong/terms.h"
#include "rdmacomm/buffer.h"
#include "rdmacomm/endpoint.h"
#include "rdmacomm/result.h"
#include "support/delivery.h"

namespace rdmacomm::ping_pong {

inline constexpr const char* kBufferName = "ping_pong";
inline constexpr std::chrono::seconds kPatience{10};

/// The steps, in order. Each has a payload pattern of its own.
enum class Step : std::uint8_t { kSend, kSendImm, kWrite, kWriteImm, kRead, kFetchAdd, kCompareSwap, kAnswer };
inline constexpr std::uint32_t kImmediate = 0xfeedbee5;
inline constexpr std::uint64_t kCounterStart = 1000;

/// Three blocks of registered memory: for outgoing messages, for incoming messages, and a counter for atomics.
/// A resource. Lifetime: must not outlive its device; outlives the endpoint that uses it.
class Memory {
 public:
  /// domain  HcaConfig::domain of the endpoint; nullptr: the device's own
  [[nodiscard]] static Result<std::unique_ptr<Memory>> create(const RDMADevice& device, const Terms& terms,
                                                              const ProtectionDomain& domain = {});
  /// The number of bytes that create() allocates.
  [[nodiscard]] static std::uint64_t bytes_for(const Terms& terms) noexcept { return kBlocks * block_bytes(terms); }
  /// Writes the data that the peer reads by READ and atomics. create() does not, so until then no page is in use.
  void fill_for_peer();

  [[nodiscard]] const RDMABuffer& buffer() const noexcept { return buffer_; }
  [[nodiscard]] BufferSlice out() const { return buffer_.at(0).first(bytes_); }
  [[nodiscard]] BufferSlice in() const { return buffer_.at(1).first(bytes_); }
  [[nodiscard]] BufferSlice counter() const { return buffer_.at(2).first(8); }
  /// The same blocks in the peer's memory, which has the same layout.
  [[nodiscard]] RemoteRegion their_out(const RemoteRegion& theirs) const noexcept {
    return {theirs.address, bytes_, theirs.rkey};
  }
  [[nodiscard]] RemoteRegion their_in(const RemoteRegion& theirs) const noexcept {
    return {theirs.address + buffer_.block_bytes(), bytes_, theirs.rkey};
  }
  [[nodiscard]] RemoteRegion their_counter(const RemoteRegion& theirs) const noexcept {
    return {theirs.address + 2 * buffer_.block_bytes(), 8, theirs.rkey};
  }

 private:
  static constexpr std::uint64_t kBlocks = 3;
  [[nodiscard]] static std::uint64_t block_bytes(const Terms& terms) noexcept {
    return std::max<std::uint64_t>((terms.size + 63) / 64 * 64, 64);
  }

  Memory(RDMABuffer buffer, std::uint32_t bytes) : buffer_(std::move(buffer)), bytes_(bytes) {}
  RDMABuffer buffer_;
  std::uint32_t bytes_;
};

/// Waits until `wanted` requests of the endpoint are complete.
/// Returns  the first failed one as an error; or as EndPoint::wait
[[nodiscard]] Status wait_for(const EndPoint& endpoint, std::size_t wanted, std::vector<Completion>& done);

/// ok if `bytes` are equal to the pattern of `step`; else the difference.
[[nodiscard]] Status check_pattern(std::span<const std::byte> bytes, Step step);
void fill_for(std::span<std::byte> bytes, Step step);

}  // namespace rdmacomm::ping_pong
