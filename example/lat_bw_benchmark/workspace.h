// workspace.h - the memory of one peer of the benchmark, with the blocks of each cell.
#pragma once

#include <cstdint>
#include <memory>

#include "lat_bw_benchmark/plan.h"
#include "rdmacomm/buffer.h"
#include "rdmacomm/result.h"

namespace rdmacomm::benchmark {

/// One registered buffer, with the same layout on both peers:
///   out area   messages are sent from here (READ: the peer reads from here)
///   in area    messages arrive here
///   counter    8 bytes for atomics
/// A resource. Lifetime: must not outlive its device; outlives the channel that uses it.
class Workspace {
 public:
  /// Allocates and registers what `plan` needs. Returns as RDMABuffer::allocate.
  /// domain  HcaConfig::domain of the endpoint; nullptr: the device's own
  [[nodiscard]] static Result<std::unique_ptr<Workspace>> create(const RDMADevice& device, const Plan& plan,
                                                                 const ProtectionDomain& domain = {});
  /// Writes to all of it, so that no page fault occurs during the measurement. Before this call no page is in use.
  void touch() noexcept;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  [[nodiscard]] RDMABuffer& buffer() noexcept { return buffer_; }
  [[nodiscard]] std::uint64_t in_offset() const noexcept { return area_bytes_; }
  [[nodiscard]] std::uint64_t counter_offset() const noexcept { return 2 * area_bytes_; }
  /// The size of a workspace for `plan`. The peer's must have the same size.
  [[nodiscard]] static std::uint64_t bytes_for(const Plan& plan);

 private:
  Workspace(RDMABuffer buffer, std::uint64_t area_bytes) : buffer_(std::move(buffer)), area_bytes_(area_bytes) {}

  RDMABuffer buffer_;
  std::uint64_t area_bytes_;
};

/// The blocks of one cell in both workspaces. A value. Block numbers are 0..count() - 1.
class Blocks {
 public:
  Blocks(Workspace& mine, const RemoteRegion& theirs, const Plan& plan, const Cell& cell);

  [[nodiscard]] std::uint32_t count() const noexcept { return count_; }
  [[nodiscard]] std::uint32_t next(std::uint32_t block) const noexcept { return block + 1 == count_ ? 0 : block + 1; }
  [[nodiscard]] std::uint32_t of(std::uint64_t iteration) const noexcept {
    return count_ == 1 ? 0 : static_cast<std::uint32_t>(iteration % count_);
  }
  [[nodiscard]] BufferSlice out(std::uint32_t block) const noexcept { return slice(out_, block); }
  [[nodiscard]] BufferSlice in(std::uint32_t block) const noexcept { return slice(in_, block); }
  [[nodiscard]] RemoteRegion their_out(std::uint32_t block) const noexcept {
    return {their_out_ + at(block), bytes_, rkey_};
  }
  [[nodiscard]] RemoteRegion their_in(std::uint32_t block) const noexcept {
    return {their_in_ + at(block), bytes_, rkey_};
  }
  [[nodiscard]] BufferSlice counter_slice() const noexcept { return {counter_, 8, lkey_}; }
  [[nodiscard]] RemoteRegion their_counter() const noexcept { return {their_counter_, 8, rkey_}; }
  [[nodiscard]] std::uint64_t* counter() const noexcept { return reinterpret_cast<std::uint64_t*>(counter_); }

 private:
  [[nodiscard]] std::uint64_t at(std::uint32_t block) const noexcept { return stride_ * block; }
  [[nodiscard]] BufferSlice slice(std::uint64_t area, std::uint32_t block) const noexcept {
    return {area + at(block), static_cast<std::uint32_t>(bytes_), lkey_};
  }

  std::uint64_t bytes_;
  std::uint64_t stride_;
  std::uint32_t count_;
  std::uint32_t lkey_;
  std::uint32_t rkey_;
  std::uint64_t out_, in_, counter_;
  std::uint64_t their_out_, their_in_, their_counter_;
};

}  // namespace rdmacomm::benchmark
