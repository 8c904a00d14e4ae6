#include "softdev/memory/mr_table.h"

namespace rdmacomm::softdev {

bool MrTable::create() {
  block_ = file_.allocate(kEntries * sizeof(MrEntry));
  table_ = reinterpret_cast<MrEntry*>(block_.mapping.data());
  if (table_ == nullptr) return false;
  file_.forbid_writing();
  return true;
}

/// Draws a free place. The table must have one.
std::uint32_t MrTable::draw_place_locked() {
  constexpr int kDraws = 16;
  const auto is_free = [this](std::uint32_t place) { return place != 0 && (table_[place].last_drawn & kTaken) == 0; };
  std::uint32_t place = random_() % kEntries;
  for (int draws = 1; draws < kDraws && !is_free(place); ++draws) place = random_() % kEntries;
  // The table is nearly full: takes the next free place.
  while (!is_free(place)) place = (place + 1) % kEntries;
  return place;
}

std::uint32_t MrTable::reserve_locked() {
  if (taken_ == kEntries) return 0;
  const std::uint32_t place = draw_place_locked();
  std::uint32_t& last = table_[place].last_drawn;
  const std::uint32_t salt = ((last & kDrawn) != 0 ? last + salt_step_ : random_()) & kSaltMask;
  last = kTaken | kDrawn | salt;
  ++taken_;
  return salt >> 8 << (8 + kPlaceBits) | place << 8 | (salt & 0xff);
}

std::uint32_t MrTable::reserve() {
  const std::scoped_lock lock(mutex_);
  return reserve_locked();
}

std::uint32_t MrTable::add(const Registration& registration) {
  const std::scoped_lock lock(mutex_);
  const std::uint32_t key = reserve_locked();
  if (key != 0) publish_locked(key, registration);
  return key;
}

Registration MrTable::find(std::uint32_t key) const {
  const MrEntry& entry = table_[place_of(key)];
  return {entry.pd, entry.access, entry.arena, entry.address, entry.length, entry.arena_offset, entry.qpn, entry.shift};
}

void MrTable::publish_locked(std::uint32_t key, const Registration& registration) {
  MrEntry& entry = table_[place_of(key)];
  entry.access = registration.access;
  entry.pd = registration.pd;
  entry.arena = registration.arena;
  entry.address = registration.address;
  entry.length = registration.length;
  entry.arena_offset = registration.arena_offset;
  entry.qpn = registration.qpn;
  entry.shift = registration.shift;
  entry.stamp = next_stamp_++;
  entry.key.store(key, std::memory_order_release);
}

void MrTable::invalidate(std::uint32_t key) {
  table_[place_of(key)].key.store(0, std::memory_order_seq_cst);
}

void MrTable::recycle(std::uint32_t key) {
  const std::scoped_lock lock(mutex_);
  table_[place_of(key)].last_drawn &= ~kTaken;
  --taken_;
}

void MrTable::replace(std::uint32_t key, const Registration& registration) {
  const std::scoped_lock lock(mutex_);
  publish_locked(key, registration);
}

}  // namespace rdmacomm::softdev
