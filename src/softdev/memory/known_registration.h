// known_registration.h - a registration that was looked up and checked before.
#pragma once

#include <cstdint>

#include "softdev/shared/layout.h"

namespace rdmacomm::softdev {

/// What one send queue knows of a registration that it may use. As long as the registration has the same stamp, all that was
/// checked then holds still: its domain, what it grants, whom it is for, and where it lies. Left: the range.
/// Threads: one at a time; that of a target is asked with the hazard flag up, see hazard.h.
class KnownRegistration {
 public:
  /// `entry` was found valid under `key`, and stays where it is; `shift` is what the caller adds to an address in it.
  void remember(const MrEntry& entry, std::uint32_t key, std::uint64_t shift) noexcept {
    entry_ = &entry;
    key_ = key;
    stamp_ = entry.stamp;
    address_ = entry.address;
    length_ = entry.length;
    shift_ = shift;
  }
  /// Whether `key` names it. What it says of it may be out of date.
  [[nodiscard]] bool is_named(std::uint32_t key) const noexcept { return key == key_ && entry_ != nullptr; }
  [[nodiscard]] std::uint64_t shift() const noexcept { return shift_; }
  /// Whether it is valid now, and the same, and [address, address + length) lies in it. Only where is_named().
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
