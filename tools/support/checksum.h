// checksum.h - what goes in and what comes out are compared by XXH3, 64 bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

struct XXH3_state_s;

namespace rdmacomm::programs {

/// The checksum of bytes that come piece by piece, or none. A resource.
/// Threads: one at a time.
class Checksum {
 public:
  /// wanted  false: update() does nothing
  explicit Checksum(bool wanted);
  void update(std::span<const std::byte> bytes) noexcept;
  /// Of all so far; empty: none is wanted.
  [[nodiscard]] std::optional<std::uint64_t> value() const noexcept;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const noexcept;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

}  // namespace rdmacomm::programs
