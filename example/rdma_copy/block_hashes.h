// block_hashes.h - hashes by which two sides find out which blocks of a file both have.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace rdmacomm::copying {

/// XXH3, 128 bits, as it is sent: the high half first, each byte in order of its weight.
using BlockHash = std::array<std::byte, 16>;

[[nodiscard]] BlockHash hash_of(std::span<const std::byte> block) noexcept;

}  // namespace rdmacomm::copying
