// checksum.h - XXH3 checksums, 64 bits, to compare input with output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

struct XXH3_state_s;

namespace rdmacomm::programs {

/// The checksum of bytes that are added in pieces. May be switched off. A resource.
/// Threads: one at a time.
class Checksum {
 public:
  /// wanted  false: update() does nothing
  explicit Checksum(bool wanted);
  void update(std::span<const std::byte> bytes) noexcept;
  /// The checksum of all bytes so far; empty: switched off.
  [[nodiscard]] std::optional<std::uint64_t> value() const noexcept;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const noexcept;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

}  // namespace rdmacomm::programs
