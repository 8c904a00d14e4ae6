// mr_table.h - the registrations of one context.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <mutex>
#include <random>
#include <span>

#include "softdev/shared/layout.h"
#include "softdev/shared/shared_file.h"

namespace rdmacomm::softdev {

/// Looks `key` up in a table and checks that [address, address + length) is inside the registration, that it
/// belongs to `pd` and that it grants all of `access`. nullptr: one of these does not hold.
/// `table` has MrTable::kEntries entries.
[[nodiscard]] inline const MrEntry* find_range(std::span<const MrEntry> table, std::uint32_t key, std::uint32_t pd,
                                               std::uint64_t address, std::uint64_t length,
                                               std::uint32_t access) noexcept {
  const MrEntry& entry = table[place_of(key)];
  if (entry.key.load(std::memory_order_acquire) != key || key == 0) return nullptr;
  if (entry.pd != pd || (entry.access & access) != access) return nullptr;
  const std::uint64_t offset = address - entry.address;  // wraps to a huge number below the start
  if (offset > entry.length || length > entry.length - offset) return nullptr;
  return &entry;
}

/// The same, where the caller translates: its memory is at `address` + MrEntry::shift.
[[nodiscard]] inline const MrEntry* find_local_range(std::span<const MrEntry> table, std::uint32_t key,
                                                     std::uint32_t pd, std::uint64_t address, std::uint64_t length,
                                                     std::uint32_t access) noexcept {
  const MrEntry* const entry = find_range(table, key, pd, address, length, access);
  return entry != nullptr ? entry : find_range(table, key, pd | kWithIova, address, length, access);
}

/// The same for a request that came to queue pair `qpn` from its initiator: memory windows count, too.
[[nodiscard]] inline const MrEntry* find_remote_range(std::span<const MrEntry> table, std::uint32_t key,
                                                      std::uint32_t pd, std::uint32_t qpn, std::uint64_t address,
                                                      std::uint64_t length, std::uint32_t access) noexcept {
  const MrEntry* entry = find_local_range(table, key, pd, address, length, access);
  if (entry != nullptr) [[likely]]
    return entry;
  entry = find_range(table, key, pd | kOfWindow, address, length, access);
  return entry != nullptr && (entry->qpn == 0 || entry->qpn == qpn) ? entry : nullptr;
}

/// What a registration is, less its key.
struct Registration {
  std::uint32_t pd = 0;
  std::uint32_t access = 0;
  Arena arena = Arena::kNone;
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint64_t arena_offset = 0;
  std::uint32_t qpn = 0;
  std::uint64_t shift = 0;
};

/// Keys are drawn at random, place and all: who knows some of them cannot count on to others (the ReDMArk attacks, USENIX Security
/// 2021). A key that has gone is valid again at the earliest when its place has been drawn 2^14 times more.
///
/// The table of registrations, in a file of its own, which peers can only read: what is in it decides what they reach.
/// Threads: any; entries() is read without a lock.
class MrTable {
 public:
  static constexpr std::uint32_t kEntries = kRegistrationEntries;

  /// Makes the table. false and errno: no memory, or no descriptor.
  [[nodiscard]] bool create();
  /// To be handed to peers, which map kEntries entries from its beginning.
  [[nodiscard]] int fd() { return file_.fd(); }

  [[nodiscard]] std::span<const MrEntry> entries() const noexcept { return {table_, kEntries}; }

  /// Enters a registration and returns its key; 0: the table is full.
  [[nodiscard]] std::uint32_t add(const Registration& registration);
  /// A place, and a key for it that is not valid yet; 0: the table is full.
  [[nodiscard]] std::uint32_t reserve();
  /// What was entered under a valid key.
  [[nodiscard]] Registration find(std::uint32_t key) const;
  /// Makes `key` invalid. Initiators that looked it up before may still be at work: the caller waits for them,
  /// then calls recycle(), or replace(), which makes it valid again.
  void invalidate(std::uint32_t key);
  void recycle(std::uint32_t key);
  void replace(std::uint32_t key, const Registration& registration);

 private:
  /// The bits of a key that are not its place.
  static constexpr std::uint32_t kSaltMask = (1U << (32 - kPlaceBits)) - 1;
  // MrEntry::last_drawn: the salt that the place had last, and these.
  static constexpr std::uint32_t kDrawn = 1U << 30;  // ever
  static constexpr std::uint32_t kTaken = 1U << 31;
  [[nodiscard]] std::uint32_t reserve_locked();
  [[nodiscard]] std::uint32_t draw_place_locked();
  void publish_locked(std::uint32_t key, const Registration& registration);

  SharedFile file_{"soft0-registrations", kPage, 0};
  SharedBlock block_;
  MrEntry* table_ = nullptr;
  std::mutex mutex_;
  std::random_device random_;
  const std::uint32_t salt_step_ = random_() | 1;  // odd: a place has each salt once before it has one again
  std::uint32_t taken_ = 1;                        // places; 0 stays free: no key is ever 0
  std::uint64_t next_stamp_ = 1;
};

}  // namespace rdmacomm::softdev
