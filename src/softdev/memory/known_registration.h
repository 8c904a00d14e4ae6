// known_registration.h - caches a registration that was looked up and checked before.
#pragma once

#include <cstdint>

#include "softdev/shared/layout.h"

namespace rdmacomm::softdev {

/// A registration that one send queue may use. While the registration has the same stamp, the earlier checks stay
/// valid: its domain, its access rights, its permitted user, and its location. Only the range must be checked.
/// Threads: one at a time. For a target's registration, call with the hazard flag up, see hazard.h.
class KnownRegistration {
 public:
  /// entry  was found valid under `key`; its address must not change.
  /// shift  the caller adds it to an address in the registration.
  void remember(const MrEntry& entry, std::uint32_t key, std::uint64_t shift) noexcept {
    entry_ = &entry;
    key_ = key;
    stamp_ = entry.stamp;
    address_ = entry.address;
    length_ = entry.length;
    shift_ = shift;
  }
  /// True if `key` is its key. The other members may be out of date.
  [[nodiscard]] bool is_named(std::uint32_t key) const noexcept { return key == key_ && entry_ != nullptr; }
  [[nodiscard]] std::uint64_t shift() const noexcept { return shift_; }
  /// True if the registration is still valid and unchanged, and [address, address + length) is inside it. Call only if
  /// is_named().
  [[nodiscard]] bool still_has(std::uint64_t address, std::uint64_t length) const noexcept {
    const std::uint64_t offset = address - address_;  // wraps to a huge number below the start
    return entry_->key.load(std::memory_order_acquire) == key_ && entry_->stamp == stamp_ && offset <= length_ &&
           length <= length_ - offset;
  }

 private:
  const MrEntry* entry_ = nullptr;
  std::uint64_t stamp_ = 0;
  std::uint64_t address_ = 0;
  std::uint64_t length_ = 0;
  std::uint64_t shift_ = 0;
  std::uint32_t key_ = 0;
};

}  // namespace rdmacomm::softdev
