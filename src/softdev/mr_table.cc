#include "softdev/mr_table.h"

namespace rdmacomm::softdev {

bool MrTable::create(SharedFile& segment) {
  block_ = segment.allocate(kEntries * sizeof(MrEntry));
  table_ = reinterpret_cast<MrEntry*>(block_.mapping.data());
  return table_ != nullptr;
}

std::uint32_t MrTable::add(std::uint32_t pd, std::uint64_t address, std::uint64_t length, std::uint32_t access,
                           Arena arena, std::uint64_t arena_offset) {
  const std::scoped_lock lock(mutex_);
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
  MrEntry& entry = table_[index];
  entry.access = access;
  entry.pd = pd;
  entry.arena = arena;
  entry.address = address;
  entry.length = length;
  entry.arena_offset = arena_offset;
  entry.stamp = next_stamp_++;
  const std::uint32_t key = index << 8 | ++generations_[index];
  entry.key.store(key, std::memory_order_release);
  return key;
}

void MrTable::invalidate(std::uint32_t key) {
  table_[key >> 8].key.store(0, std::memory_order_seq_cst);
}

void MrTable::recycle(std::uint32_t key) {
  const std::scoped_lock lock(mutex_);
  free_.push_back(key >> 8);
}

}  // namespace rdmacomm::softdev
