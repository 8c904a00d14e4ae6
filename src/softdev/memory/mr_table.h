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

/// Looks up `key` and checks that [address, address + length) is inside the registration, that it belongs to `pd`, and
/// that it grants all of `access`.
/// table    has MrTable::kEntries entries
/// Returns  nullptr: a check failed.
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

/// The same for a caller that translates addresses: the memory is at `address` + MrEntry::shift.
[[nodiscard]] inline const MrEntry* find_local_range(std::span<const MrEntry> table, std::uint32_t key,
                                                     std::uint32_t pd, std::uint64_t address, std::uint64_t length,
                                                     std::uint32_t access) noexcept {
  const MrEntry* const entry = find_range(table, key, pd, address, length, access);
  return entry != nullptr ? entry : find_range(table, key, pd | kWithIova, address, length, access);
}

/// The same for a request to queue pair `qpn` from its initiator. It also finds memory windows.
[[nodiscard]] inline const MrEntry* find_remote_range(std::span<const MrEntry> table, std::uint32_t key,
                                                      std::uint32_t pd, std::uint32_t qpn, std::uint64_t address,
                                                      std::uint64_t length, std::uint32_t access) noexcept {
  const MrEntry* entry = find_local_range(table, key, pd, address, length, access);
  if (entry != nullptr) [[likely]]
    return entry;
  entry = find_range(table, key, pd | kOfWindow, address, length, access);
  return entry != nullptr && (entry->qpn == 0 || entry->qpn == qpn) ? entry : nullptr;
}

/// A registration without its key.
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

/// The table of registrations. It has its own file, which peers can only read, because its contents decide which memory
/// they may access.
///
/// A key, including its place, is drawn at random. A process that has some keys cannot derive others from them (the
/// ReDMArk attacks, USENIX Security 2021). A removed key can become valid again only after its place has been drawn
/// 2^14 more times.
/// Threads: any; entries() is read without a lock.
class MrTable {
 public:
  static constexpr std::uint32_t kEntries = kRegistrationEntries;

  /// Creates the table. Returns false and errno: no memory, or no descriptor.
  [[nodiscard]] bool create();
  /// The descriptor for peers. They map kEntries entries from the file's beginning.
  [[nodiscard]] int fd() { return file_.fd(); }

  [[nodiscard]] std::span<const MrEntry> entries() const noexcept { return {table_, kEntries}; }

  /// Adds a registration and returns its key; 0: the table is full.
  [[nodiscard]] std::uint32_t add(const Registration& registration);
  /// Reserves a place. Returns a key for it, which is not valid yet; 0: the table is full.
  [[nodiscard]] std::uint32_t reserve();
  /// The registration with a valid key.
  [[nodiscard]] Registration find(std::uint32_t key) const;
  /// Makes `key` invalid. Initiators that looked it up before may still be at work. So the caller waits for them, and
  /// then calls recycle(), or replace(), which makes the key valid again.
  void invalidate(std::uint32_t key);
  void recycle(std::uint32_t key);
  void replace(std::uint32_t key, const Registration& registration);

 private:
  /// The bits of a key without its place.
  static constexpr std::uint32_t kSaltMask = (1U << (32 - kPlaceBits)) - 1;
  // MrEntry::last_drawn: the last salt of the place, and these flags.
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
  const std::uint32_t salt_step_ = random_() | 1;  // odd: a place uses each salt once before any salt repeats
  std::uint32_t taken_ = 1;                        // number of places; place 0 is never used, so no key is 0
  std::uint64_t next_stamp_ = 1;
};

}  // namespace rdmacomm::softdev
