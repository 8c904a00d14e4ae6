// fault_stream.h - random numbers that depend on the seed of a plan and on nothing else.
#pragma once

#include <cstdint>

namespace rdmacomm::softdev {

/// A sequence of random numbers. Two streams with the same seed and purpose are equal, on every machine. A value.
/// Threads: one at a time.
class FaultStream {
 public:
  /// purpose  distinguishes the streams of one seed
  FaultStream(std::uint64_t seed, std::uint64_t purpose) noexcept : state_(mixed(seed) + mixed(~purpose)) {}

  [[nodiscard]] std::uint64_t next() noexcept { return mixed(state_ += kStep); }
  /// A number from 0 to `count` - 1. `count` is at most 2^32, so that no number is more likely than another by more
  /// than 2^-32.
  [[nodiscard]] std::uint64_t below(std::uint64_t count) noexcept { return (next() >> 32) * count >> 32; }

 private:
  static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15;  // 2^64 divided by the golden ratio

  /// Each bit of the result depends on each bit of `x`.
  [[nodiscard]] static std::uint64_t mixed(std::uint64_t x) noexcept {
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93;
    return x ^ x >> 32;
  }

  std::uint64_t state_;
};

}  // namespace rdmacomm::softdev
