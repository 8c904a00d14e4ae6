// blocks.h - an allocator of blocks of a page and more in the file.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "softdev/preload/memory/own_file.h"
#include "softdev/preload/memory/ranges.h"

namespace rdmacomm::softdev::own {

/// Contiguous memory, at a multiple of kSegmentBytes: a run of short blocks, or one long block.
struct Segment {
  static constexpr std::size_t kBytes = std::size_t{4} << 20;
  static constexpr std::size_t kPages = kBytes / 4096;
  std::uintptr_t start = 0;
  std::size_t length = 0;
  std::uint64_t offset = 0;      ///< in the file
  std::uint64_t generation = 0;  ///< of Blocks; another one: allocated by the parent, so its memory is private
  bool is_run = false;
  bool is_kept = false;  ///< a freed long block that keeps its memory
};

/// Sizes are rounded up to one of a few, and a freed block serves the next request of that size. The list of free
/// blocks is in memory of its own, because peers can write to the blocks.
/// Threads: the caller has locked the state, except for find().
class Blocks {
 public:
  explicit constexpr Blocks(OwnFile& file) noexcept : file_(file) {}

  /// alignment  a power of two, at most Segment::kBytes
  /// is_zeroed  set to true if all bytes of the block are 0
  /// Returns    nullptr: no memory
  [[nodiscard]] void* allocate(std::size_t length, std::size_t alignment, bool& is_zeroed) noexcept;
  /// Returns  false: no such block, or it is free already.
  [[nodiscard]] bool free(const Segment& segment, void* block) noexcept;
  /// The segment that contains `address`; nullptr: other memory. Cost: two loads.
  [[nodiscard]] const Segment* find(const void* address) const noexcept;
  /// The bytes of a block; 0: no block begins there.
  [[nodiscard]] std::size_t size(const Segment& segment, const void* block) const noexcept;
  /// Calls `visit` with the parts of [start, start + length) that are in the file.
  template <typename Visit>
  void visit(std::uintptr_t start, std::size_t length, Visit&& visit) const {
    const std::uintptr_t end = start + length;
    for (std::uintptr_t at = start; at < end;) {
      const std::uintptr_t next = (at / Segment::kBytes + 1) * Segment::kBytes;
      const Segment* const segment = find(reinterpret_cast<const void*>(at));
      const std::uintptr_t segment_end = segment == nullptr ? next : segment->start + segment->length;
      if (segment != nullptr && segment->generation == generation_ && at < segment_end) {
        const std::size_t bytes = std::min(segment_end, end) - at;
        visit(Range{at, bytes, segment->offset + (at - segment->start)});
        at += bytes;
      } else {
        at = next;
      }
    }
  }
  /// Gives freed long blocks back to the system, so that a child need not copy them.
  void drop_kept() noexcept;
  /// In a child: all blocks have become private memory. They stay valid, and are not allocated again.
  void begin_generation() noexcept;

 private:
  static constexpr std::size_t kClasses = 32;
  static constexpr std::size_t kMostRuns = 16384;
  /// Freed blocks keep up to this much memory for the next requests.
  static constexpr std::size_t kMostKept = std::size_t{64} << 20;
  /// The same for long blocks: their number, and their memory.
  static constexpr std::size_t kMostKeptLong = 8;
  static constexpr std::size_t kMostKeptLongBytes = std::size_t{32} << 20;
  struct Run;
  static constexpr std::size_t kMostPages = 512;  ///< of a block in a run
  [[nodiscard]] static std::size_t class_of(std::size_t pages) noexcept;
  [[nodiscard]] static std::size_t pages_of(std::size_t size_class) noexcept;
  [[nodiscard]] Run* new_run() noexcept;
  [[nodiscard]] void* take_free(std::size_t size_class) noexcept;
  void put_free(Run& run, std::size_t page, std::size_t size_class) noexcept;
  [[nodiscard]] void* carve(std::size_t size_class) noexcept;
  void use_up_run() noexcept;
  [[nodiscard]] void* take_kept(std::size_t length) noexcept;
  [[nodiscard]] bool keep(Segment& segment) noexcept;
  void release(Segment& segment) noexcept;
  [[nodiscard]] void* allocate_long(std::size_t length) noexcept;
  [[nodiscard]] bool place(Segment& segment, std::size_t length) noexcept;
  [[nodiscard]] bool enter(std::uintptr_t start, Segment* segment) noexcept;
  [[nodiscard]] void* record(std::size_t bytes) noexcept;

  static constexpr std::size_t kLeafBits = 12;
  static constexpr std::size_t kAddressBits = 47;
  static constexpr std::size_t kSegmentBits = 22;
  static constexpr std::size_t kTop = std::size_t{1} << (kAddressBits - kSegmentBits - kLeafBits);
  struct Leaf {
    std::atomic<Segment*> segments[std::size_t{1} << kLeafBits];
  };

  OwnFile& file_;
  std::uint64_t generation_ = 1;
  std::size_t kept_ = 0;
  std::size_t kept_long_bytes_ = 0;
  Run* current_ = nullptr;
  std::size_t runs_ = 0;
  std::uintptr_t next_start_ = 0;  // where a segment probably fits
  Segment* free_records_ = nullptr;
  std::uintptr_t records_ = 0;  // memory for further records
  std::size_t records_left_ = 0;
  Segment* kept_long_[kMostKeptLong] = {};
  std::uint32_t free_[kClasses] = {};  // number of the first free block; 0: none
  Run* run_by_number_[kMostRuns] = {};
  std::atomic<Leaf*> leaves_[kTop] = {};
};

}  // namespace rdmacomm::softdev::own
