#include "softdev/mr_table.h"

namespace rdmacomm::softdev {

bool MrTable::create() {
  block_ = file_.allocate(kEntries * sizeof(MrEntry));
  table_ = reinterpret_cast<MrEntry*>(block_.mapping.data());
  if (table_ == nullptr) return false;
  file_.forbid_writing();
  return true;
}

std::uint32_t MrTable::reserve_locked() {
  std::uint32_t index = used_;
  if (!free_.empty()) {
    index = free_.back();
    free_.pop_back();
  } else if (used_ < kEntries) {
    ++used_;
    generations_.push_back(0);
  } else {
    return 0;
  }
  return index << 8 | ++generations_[index];
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
  const MrEntry& entry = table_[key >> 8];
  return {entry.pd, entry.access, entry.arena, entry.address, entry.length, entry.arena_offset, entry.qpn, entry.shift};
}

void MrTable::publish_locked(std::uint32_t key, const Registration& registration) {
  MrEntry& entry = table_[key >> 8];
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
  table_[key >> 8].key.store(0, std::memory_order_seq_cst);
}

void MrTable::recycle(std::uint32_t key) {
  const std::scoped_lock lock(mutex_);
  free_.push_back(key >> 8);
}

void MrTable::replace(std::uint32_t key, const Registration& registration) {
  const std::scoped_lock lock(mutex_);
  publish_locked(key, registration);
}

}  // namespace rdmacomm::softdev
