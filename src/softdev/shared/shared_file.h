// shared_file.h - memory that peers can map: one memfd, allocated in pages.
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
  /// Maps `length` bytes from `offset` on; empty() and errno on failure. Children of fork() do not inherit it, because
  /// a child that writes there would change its parent's memory.
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

/// A range of a SharedFile and the owner's mapping of it.
struct SharedBlock {
  std::uint64_t offset = 0;
  Mapping mapping;
};

/// A range that its owner has unmapped.
struct SharedRange {
  std::uint64_t offset = 0;
  std::size_t length = 0;
};

/// A sparse memfd: pages are allocated at the first access and returned to the system with their block. It has no name
/// in any file system, so it disappears with its last user.
/// Threads: any.
class SharedFile {
 public:
  /// Does not create the memfd: the first allocate() or fd() does.
  SharedFile(const char* name, std::size_t granule, unsigned memfd_flags) noexcept
      : name_(name), granule_(granule), memfd_flags_(memfd_flags) {}

  /// A zeroed block of at least `length` bytes, rounded up to the granule; an empty mapping and errno on failure.
  [[nodiscard]] SharedBlock allocate(std::size_t length);
  /// Frees a block. Peers that still map it read zeroes.
  void free(SharedBlock block) { free(unmap(std::move(block))); }
  void free(SharedRange range);
  /// The first step of free(): unmaps the block. No thread of this process may use the block any more.
  [[nodiscard]] static SharedRange unmap(SharedBlock block) noexcept { return {block.offset, block.mapping.size()}; }
  /// From now on, freed blocks keep their contents for peers that still map them, because a peer may be in the middle
  /// of a request.
  void keep_contents();
  /// From now on, only existing mappings can write. A process that receives the descriptor later can only read. Linux
  /// before 5.1 does not support this and still allows writing.
  void forbid_writing();
  /// The descriptor for peers, which may request it before the first block exists; -1 and errno on failure.
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
