// block_hashes.h - hashes that find the common blocks of a file on two peers, at any offset.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace rdmacomm::copying {

/// XXH3, 128 bits, in wire form: the high half first, each half with its most significant byte first.
using BlockHash = std::array<std::byte, 16>;

[[nodiscard]] BlockHash hash_of(std::span<const std::byte> block) noexcept;

/// A sum over a window of bytes that is cheap to move by one byte. As in rsync: the sum of the bytes, and the sum of
/// the bytes times their position.
class RollingSum {
 public:
  explicit RollingSum(std::span<const std::byte> window) noexcept;
  [[nodiscard]] std::uint32_t value() const noexcept { return (sum_ & 0xffff) | weighted_ << 16; }
  /// Moves the window by one byte: `out` was its first byte, `in` becomes its last.
  void roll(std::byte out, std::byte in) noexcept {
    sum_ += static_cast<std::uint32_t>(in) - static_cast<std::uint32_t>(out);
    weighted_ += sum_ - length_ * static_cast<std::uint32_t>(out);
  }

 private:
  std::uint32_t length_;
  std::uint32_t sum_ = 0;
  std::uint32_t weighted_ = 0;
};

/// The two hashes of a block. A value.
struct BlockSums {
  std::uint32_t rolling = 0;
  BlockHash hash = {};
  bool operator==(const BlockSums&) const = default;
};
[[nodiscard]] BlockSums sums_of(std::span<const std::byte> block) noexcept;

/// Finds a block by its content.
class BlockIndex {
 public:
  /// blocks  all of the same size; leave out a shorter last one
  explicit BlockIndex(std::span<const BlockSums> blocks);
  /// False: no block has this rolling sum. Fast.
  [[nodiscard]] bool may_have(std::uint32_t rolling) const noexcept {
    const std::uint32_t bit = bit_of(rolling);
    return (filter_[bit / 64] >> bit % 64 & 1) != 0;
  }
  /// The number of a block with these bytes.
  [[nodiscard]] std::optional<std::uint64_t> find(std::uint32_t rolling, std::span<const std::byte> bytes) const;

 private:
  static constexpr int kFilterBits = 23;  // a MiB
  [[nodiscard]] static std::uint32_t bit_of(std::uint32_t rolling) noexcept {
    return (rolling * 0x9e3779b1U) >> (32 - kFilterBits);
  }

  struct Known {
    std::uint32_t rolling = 0;
    std::uint32_t block = 0;
    BlockHash hash = {};
  };
  std::vector<Known> known_;  // sorted by rolling sum
  std::vector<std::uint64_t> filter_;
};

}  // namespace rdmacomm::copying
