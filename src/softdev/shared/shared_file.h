// shared_file.h - memory that peers can map: one memfd, handed out in pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "base/unique_fd.h"

namespace rdmacomm::softdev {

/// A mapping of a part of a shared file; unmapped by its destructor. Movable.
class Mapping {
 public:
  Mapping() = default;
  /// Maps `length` bytes from `offset` on; empty() and errno on failure. Not inherited by fork(): a child that
  /// wrote there would write into its parent's memory.
  Mapping(int fd, std::uint64_t offset, std::size_t length, bool writable) noexcept;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { reset(); }

  [[nodiscard]] bool empty() const noexcept { return data_ == nullptr; }
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return length_; }
  void reset() noexcept;

 private:
  std::byte* data_ = nullptr;
  std::size_t length_ = 0;
};

/// A range of a SharedFile, and the owner's mapping of it.
struct SharedBlock {
  std::uint64_t offset = 0;
  Mapping mapping;
};

/// The same, mapped by its owner no more.
struct SharedRange {
  std::uint64_t offset = 0;
  std::size_t length = 0;
};

/// A sparse memfd: pages come into being when they are touched, and are given back to the system when their
/// block is. It has no name in any file system, so nothing is left of it when its last user is gone.
/// Threads: any.
class SharedFile {
 public:
  /// Nothing is made yet: the memfd comes with the first block, or the first peer.
  SharedFile(const char* name, std::size_t granule, unsigned memfd_flags) noexcept
      : name_(name), granule_(granule), memfd_flags_(memfd_flags) {}

  /// A zeroed block of at least `length` bytes, rounded up to the granule; an empty mapping and errno on failure.
  [[nodiscard]] SharedBlock allocate(std::size_t length);
  /// Gives a block back. Peers that still map it read zeroes.
  void free(SharedBlock block) { free(unmap(std::move(block))); }
  void free(SharedRange range);
  /// The first half of that: nobody in this process has the block any more.
  [[nodiscard]] static SharedRange unmap(SharedBlock block) noexcept { return {block.offset, block.mapping.size()}; }
  /// From now on peers that still map what is given back find it as it was: one of them is in the middle of using it.
  void keep_contents();
  /// From now on nobody writes but by mappings that are there already: who is handed the descriptor can only read. Linux before
  /// 5.1 does not know this, and lets them write.
  void forbid_writing();
  /// The descriptor to hand to peers, who may ask before the first block is made; -1 and errno on failure.
  [[nodiscard]] int fd();

 private:
  bool open_locked();
  std::uint64_t take_locked(std::size_t length);
  void give_locked(std::uint64_t offset, std::size_t length);

  const char* const name_;
  const std::size_t granule_;
  const unsigned memfd_flags_;
  std::mutex mutex_;
  UniqueFd fd_;
  std::uint64_t bytes_ = 0;
  bool keeps_contents_ = false;
  std::map<std::uint64_t, std::uint64_t> free_;  // offset -> length, no two adjacent
};

}  // namespace rdmacomm::softdev
